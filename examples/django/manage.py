#!/usr/bin/env python
"""Commands of Django, such as `python manage.py migrate`."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "harbor.settings")
    execute_from_command_line(sys.argv)
