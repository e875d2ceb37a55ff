"""Decisions: run the rules on one object and answer an AdmissionReview."""
