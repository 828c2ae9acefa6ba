from berths import views
from django.urls import path

urlpatterns = [path("", views.index), path("berths/<int:number>/", views.berth)]
