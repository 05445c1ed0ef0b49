"""Every method as a plain float64 loop over samples, written from its description and not from the package's fast code."""
