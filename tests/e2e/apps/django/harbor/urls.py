from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path


def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse("the harbor is open")


urlpatterns = [path("", home), path("admin/", admin.site.urls)]
