"""Other servers in Python: asynchronous frameworks, dashboards, and scripts that start themselves."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter

STARTERS = (
    Starter(
        "wsgi-module",
        "WSGI or ASGI module",
        {
            "requirements.txt": "# only the standard library\n",
            "wsgi.py": """
                def application(environ, start_response):
                    start_response("200 OK", [("Content-Type", "text/plain")])
                    return [b"Hello from WSGI"]
            """,
        },
        {"/": "Hello from WSGI"},
    ),
    Starter(
        "streamlit",
        "Streamlit",
        {
            "requirements.txt": "streamlit==1.41.1\n",
            "streamlit_app.py": 'import streamlit as st\n\nst.title("Harbor dashboard")\nst.write("berths", 3)\n',
        },
        {"/": "<title>Streamlit</title>", "/_stcore/health": "ok"},
    ),
    Starter(
        "gradio",
        "Gradio",
        {
            "requirements.txt": "gradio==5.12.0\nhuggingface_hub==0.27.1\npydantic==2.10.6\n",
            "app.py": """
                import gradio as gr


                def greet(name):
                    return f"Hello {name}!"


                demo = gr.Interface(fn=greet, inputs="text", outputs="text")

                if __name__ == "__main__":
                    demo.launch()
            """,
        },
        {"/": "gradio"},
    ),
    Starter(
        "dash",
        "Dash",
        {
            "requirements.txt": "dash==2.18.2\nsetuptools==75.8.0\n",
            "app.py": """
                from dash import Dash, html

                app = Dash(__name__, title="Berths")
                server = app.server
                app.layout = html.Div("Free berths")

                if __name__ == "__main__":
                    app.run(debug=True)
            """,
        },
        {"/": "<title>Berths</title>", "/_dash-layout": "Free berths"},
    ),
    Starter(
        "starlette",
        "Starlette",
        {
            "requirements.txt": "starlette==0.45.2\nuvicorn==0.34.0\n",
            "app.py": """
                from starlette.applications import Starlette
                from starlette.responses import JSONResponse
                from starlette.routing import Route


                async def homepage(request):
                    return JSONResponse({"hello": "starlette"})


                app = Starlette(debug=True, routes=[Route("/", homepage)])
            """,
        },
        {"/": '{"hello":"starlette"}'},
    ),
    Starter(
        "litestar",
        "Litestar",
        {
            "requirements.txt": "litestar[standard]==2.25.0\n",
            "app.py": """
                from litestar import Litestar, get


                @get("/")
                async def index() -> str:
                    return "Hello, Litestar!"


                app = Litestar([index])
            """,
        },
        {"/": "Hello, Litestar!"},
    ),
    Starter(
        "sanic",
        "Sanic",
        {
            "requirements.txt": "sanic==24.12.0\nsetuptools==75.8.0\n",
            "server.py": """
                from sanic import Sanic
                from sanic.response import text

                app = Sanic("HarborApp")


                @app.get("/")
                async def hello_world(request):
                    return text("Hello, Sanic.")
            """,
        },
        {"/": "Hello, Sanic."},
    ),
    Starter(
        "quart",
        "Quart",
        {
            "requirements.txt": "quart==0.20.0\n",
            "app.py": """
                from quart import Quart

                app = Quart(__name__)


                @app.route("/")
                async def hello():
                    return "Hello, Quart"


                if __name__ == "__main__":
                    app.run()
            """,
        },
        {"/": "Hello, Quart"},
    ),
    Starter(
        "tornado",
        "Tornado",
        {
            "requirements.txt": "tornado==6.4.2\n",
            "main.py": """
                import asyncio

                import tornado.web


                class MainHandler(tornado.web.RequestHandler):
                    def get(self):
                        self.write("Hello, Tornado")


                async def main():
                    app = tornado.web.Application([(r"/", MainHandler)])
                    app.listen(8888)
                    await asyncio.Event().wait()


                if __name__ == "__main__":
                    asyncio.run(main())
            """,
        },
        {"/": "Hello, Tornado"},
    ),
    Starter(
        "aiohttp",
        "aiohttp",
        {
            "requirements.txt": "aiohttp==3.11.11\n",
            "main.py": """
                from aiohttp import web


                async def handle(request):
                    return web.Response(text="Hello, " + request.match_info.get("name", "Anonymous"))


                app = web.Application()
                app.add_routes([web.get("/", handle), web.get("/{name}", handle)])

                if __name__ == "__main__":
                    web.run_app(app)
            """,
        },
        {"/": "Hello, Anonymous", "/ada": "Hello, ada"},
    ),
    Starter(
        "bottle",
        "Bottle",
        {
            "requirements.txt": "bottle==0.13.2\n",
            "app.py": """
                from bottle import route, run, template


                @route("/hello/<name>")
                def index(name):
                    return template("<b>Hello {{name}}</b>!", name=name)


                run(host="localhost", port=8080)
            """,
        },
        {"/hello/ada": "<b>Hello ada</b>!", "/": 404},
    ),
    Starter(
        "http-server-of-the-standard-library",
        "Python",
        {
            "main.py": """
                import os
                from http.server import BaseHTTPRequestHandler, HTTPServer


                class Handler(BaseHTTPRequestHandler):
                    def do_GET(self):
                        self.send_response(200)
                        self.end_headers()
                        self.wfile.write(b"nothing but Python")


                HTTPServer(("", int(os.environ.get("PORT", 8000))), Handler).serve_forever()
            """,
        },
        {"/": "nothing but Python"},
    ),
    Starter(
        "procfile",
        "Python",
        {
            "Procfile": "web: gunicorn service:application --bind 0.0.0.0:$PORT\n",
            "requirements.txt": "gunicorn==23.0.0\n",
            "service.py": """
                def application(environ, start_response):
                    start_response("200 OK", [("Content-Type", "text/plain")])
                    return [b"by a Procfile"]
            """,
        },
        {"/": "by a Procfile"},
    ),
    Starter(
        "falcon",
        "Falcon",
        {
            "requirements.txt": "falcon==4.0.2\n",
            "app.py": """
                import falcon


                class Quote:
                    def on_get(self, req, resp):
                        resp.media = {"quote": "I shall be released"}


                app = falcon.App()
                app.add_route("/quote", Quote())
            """,
        },
        {"/quote": "I shall be released", "/": 404},
    ),
    Starter(
        "cherrypy",
        "CherryPy",
        {
            "requirements.txt": "cherrypy==18.10.0\n",
            "main.py": """
                import cherrypy


                class HelloWorld:
                    @cherrypy.expose
                    def index(self):
                        return "Hello CherryPy"


                cherrypy.quickstart(HelloWorld())
            """,
        },
        {"/": "Hello CherryPy"},
    ),
    Starter(
        "nicegui",
        "NiceGUI",
        {
            "requirements.txt": "nicegui==2.9.1\n",
            "main.py": 'from nicegui import ui\n\nui.label("Hello NiceGUI!")\n\nui.run(show=False)\n',
        },
        {"/": "Hello NiceGUI!"},
    ),
    Starter(
        "fasthtml",
        "FastHTML",
        {
            "requirements.txt": "python-fasthtml==0.14.14\n",
            "main.py": """
                from fasthtml.common import *

                app, rt = fast_app()


                @rt("/")
                def get():
                    return Titled("FastHTML", P("Let's do this!"))


                serve()
            """,
        },
        {"/": "do this!"},
    ),
    Starter(
        "shiny",
        "Shiny",
        {
            "requirements.txt": "shiny==1.2.1\n",
            "app.py": """
                from shiny import App, ui

                app_ui = ui.page_fluid(ui.panel_title("Hello Shiny!"))


                def server(input, output, session):
                    pass


                app = App(app_ui, server)
            """,
        },
        {"/": "Hello Shiny!"},
    ),
    Starter(
        # The app is in a folder that its guide starts with `cd`.
        "app-in-a-folder",
        "FastAPI",
        {
            "README.md": "# Notes\n\ncd backend && uvicorn main:app\n",
            "docker-compose.yml": "services:\n  api:\n    build: ./backend\n",
            "backend/requirements.txt": "fastapi==0.115.6\nuvicorn==0.34.0\n",
            "backend/main.py": """
                from fastapi import FastAPI

                app = FastAPI()


                @app.get("/")
                def home():
                    return {"folder": "backend"}
            """,
        },
        {"/": '{"folder":"backend"}'},
    ),
)
