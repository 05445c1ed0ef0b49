"""What everything else is made of: classifier, samples, parameters, towers. Constructors check; no files."""
