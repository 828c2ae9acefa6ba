"""Database software: releases, installs and templates of data folders."""
