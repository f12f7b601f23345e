"""The worker loop, written once, and one engine per backend behind a narrow interface."""
