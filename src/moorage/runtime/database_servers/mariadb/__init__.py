"""MariaDB and MySQL servers."""
