"""Every method as a plain float64 loop over samples, written from the specification and not from the package."""
