"""The one place where the version stands; the pilot side has no package metadata to ask."""

VERSION = "0.1.0"
