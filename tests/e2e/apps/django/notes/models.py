from django.contrib import admin
from django.db import models


class Note(models.Model):
    text = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.text


admin.site.register(Note)
