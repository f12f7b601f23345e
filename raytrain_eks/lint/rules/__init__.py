"""One module of rules for each subject. A rule's check takes the bundle and the settings and yields hits."""
