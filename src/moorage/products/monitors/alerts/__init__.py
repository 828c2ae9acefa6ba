"""Alert rules, incidents and notifications."""
