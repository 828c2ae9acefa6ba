"""Style and policy of the HTML pages that the server renders."""
