package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tag removes gRPC's pages of traces, whose templates call methods by name. In a program that does so, the linker
// keeps all exported methods, and the operator has 73 MB instead of 53, most of which is resident.
const tag = "grpcnotrace"

func TestTheLinkerRemovesUnusedMethodsOfTheOperator(t *testing.T) {
	build := exec.CommandContext(t.Context(), "go", "build", "-tags="+tag, "-ldflags=-dumpdep", "-o", filepath.Join(t.TempDir(), "yardmaster"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if len(output) == 0 {
		t.Fatal("the linker printed no dependencies")
	}
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, "<ReflectMethod>") {
			t.Fatalf("methods are called by name, so that all are kept: %s", line)
		}
	}
}

func TestTheOperatorIsBuiltWithTheSameTagEverywhere(t *testing.T) {
	const root = "../.."
	for path, want := range map[string]string{
		"Makefile":                 "-tags " + tag + " ",
		"Dockerfile":               "-tags " + tag + " ",
		"hack/release":             "-tags " + tag + " ",
		"test/testenv/operator.go": `"-tags=` + tag + `"`,
	} {
		if !strings.Contains(readFile(t, filepath.Join(root, path)), want) {
			t.Errorf("%s does not contain %q", path, want)
		}
	}
}
