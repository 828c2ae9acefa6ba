"""Small repositories in Go, and the plans that they should get."""

from __future__ import annotations

from tests.runtime.builds.detection_case import Case, js

GO_CASES = (
    Case("Go", {"go.mod": "module x", "main.go": "package main"}, "go build -o app .", start="./app"),
    Case("Go", {**js("parcel"), "go.mod": "module x", "main.go": "package main"}, "go build -o app .", start="./app"),
    Case("Go", {**js("sass"), "go.mod": "module x", "main.go": "package main"}, "go build -o app .", start="./app"),
    Case("Go", {"go.mod": "module x", "main.go": "package main", "Procfile": "web: x --port $PORT"},
         "go build -o bin/x .", start="bin/x --port $PORT"),
    Case("Go", {"go.mod": "module x", "main.go": "package main", "Procfile": "web: bin/x"},
         "go build -o bin/x .", start="bin/x"),
    Case("Go", {"go.mod": "module x", "main.go": "package main", "Procfile": "web: go run main.go"},
         "go build -o app .", start="./app"),
    Case("Go", {"go.mod": "module x", "main.go": "package main", "run.sh": "", "Procfile": "web: ./run.sh"},
         "go build -o app .", start="./run.sh"),
    Case("Go", {"go.mod": "module x", "cmd/api/main.go": "package main", "x.go": "package x"},
         "go build -o app ./cmd/api", start="./app"),
    Case("Go with several programs", {"go.mod": "", "cmd/a/a.go": "package main", "cmd/b/b.go": "package main"},
         refusal="./cmd/a, ./cmd/b"),
    Case("Go", {"go.mod": "module x", "cmd/a/a.go": "package main", "cmd/b/b.go": "package main",
                "Dockerfile": "RUN CGO_ENABLED=0 go build -o /bin/b ./cmd/b/"},
         "go build -o app ./cmd/b", start="./app"),
    Case("Go", {"go.mod": "module x", "cmd/a/a.go": "package main", "cmd/b/b.go": "package main",
                "Makefile": "all:\n\tgo test ./cmd/a && go build -ldflags=\"-s -w\" -o b \"./cmd/b/b.go\"\n"},
         "go build -o app ./cmd/b", start="./app"),
    Case("Go", {"go.mod": "module a.test/x/berths/v2", "cmd/tool/a.go": "package main",
                "cmd/berths/b.go": "package main"}, "go build -o app ./cmd/berths", start="./app"),
    Case("Go", {"go.mod": "module x", "cmd/seed/a.go": "package main", "cmd/berths/b.go":
                "package main\nfunc main() { http.ListenAndServe(a, nil) }"},
         "go build -o app ./cmd/berths", start="./app"),
    Case("Go", {"go.mod": "module x", "services/api/sales/main.go": "package main", "x.go": "package x"},
         "go build -o app ./services/api/sales", start="./app"),
    Case("Dockerfile", {"go.mod": "", "cmd/a/a.go": "package main", "cmd/b/b.go": "package main",
                        "Dockerfile": "FROM a"}),
    Case("Go file", {"main.go": "package main", "page.go": "package main"}, "GO111MODULE=off go build -o app .",
         start="./app"),
    Case("Go file", {"main.go": "package main\nfunc main() {\n}", "old.go": "package main\nfunc main() {\n}"},
         "GO111MODULE=off go build -o app main.go", start="./app"),
    Case("Go file", {"berths.go": 'package main\nimport (\n\t"code.test/a/berths/pages"\n)\nfunc main() {\n}',
                     "seed.go": "// +build ignore\n\npackage main\nfunc main() {\n}", "pages/a.go": "package pages"},
         "go mod init code.test/a/berths && go mod tidy && go build -o app .", start="./app"),
    Case("Go file", {"main.go": 'package main\nimport "code.test/a/berths/pages"', "pages/a.go": "package pages",
                     "vendor/code.test/b/b.go": "package b"},
         "export GO111MODULE=off GOPATH=$(mktemp -d) && mkdir -p $GOPATH/src/code.test/a && "
         "ln -s $PWD $GOPATH/src/code.test/a/berths && cd $GOPATH/src/code.test/a/berths && go build -o app .",
         start="./app"),
)  # fmt: skip
