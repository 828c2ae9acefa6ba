from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

BERTHS = {7: "Ada", 8: "Grace"}


def index(request: HttpRequest) -> HttpResponse:
    return render(request, "berths/index.html", {"berths": BERTHS.items()})


def berth(request: HttpRequest, number: int) -> JsonResponse:
    if number not in BERTHS:
        raise Http404
    return JsonResponse({"berth": number, "ship": BERTHS[number]})
