package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/internal/gateway"
	"github.com/yardmaster/yardmaster/internal/operator"
	"github.com/yardmaster/yardmaster/test/require"
)

// The chart refuses names of flags that do not exist, so that a misspelled flag is not deployed.
func TestTheChartAcceptsTheFlagsOfTheProgramsAndNoOthers(t *testing.T) {
	type flagValues struct {
		PropertyNames struct {
			Enum []string `json:"enum"`
		} `json:"propertyNames"`
	}
	var schema struct {
		Properties struct {
			Flags   flagValues `json:"flags"`
			Gateway struct {
				Properties struct {
					Flags flagValues `json:"flags"`
				} `json:"properties"`
			} `json:"gateway"`
		} `json:"properties"`
	}
	raw, err := os.ReadFile("../../charts/yardmaster/values.schema.json")
	require.NoError(t, err)
	err = json.Unmarshal(raw, &schema)
	require.NoError(t, err)
	var usage bytes.Buffer
	_, err = operator.ParseFlags([]string{"-h"}, nil, &usage)
	require.True(t, errors.Is(err, flag.ErrHelp), "%v", err)
	compareFlags(t, "flags", schema.Properties.Flags.PropertyNames.Enum, usage.String())
	usage.Reset()
	_, err = gateway.ParseFlags([]string{"-h"}, nil, &usage)
	require.True(t, errors.Is(err, flag.ErrHelp), "%v", err)
	compareFlags(t, "gateway.flags", schema.Properties.Gateway.Properties.Flags.PropertyNames.Enum, usage.String())
}

var usageFlag = regexp.MustCompile(`(?m)^ {2}-([a-z0-9-]+)`)

func compareFlags(t *testing.T, value string, accepted []string, usage string) {
	t.Helper()
	var flags []string
	for _, match := range usageFlag.FindAllStringSubmatch(usage, -1) {
		if match[1] != "version" {
			flags = append(flags, match[1])
		}
	}
	slices.Sort(flags)
	diff := cmp.Diff(flags, accepted)
	require.True(t, diff == "", "propertyNames of %s in values.schema.json (-flags of the program, +names that the chart accepts):\n%s", value, diff)
}

// The directories of an image's sources are listed in .dockerignore and in the operator's
// Dockerfile. A missing one would otherwise fail only where Docker builds the image.
func TestImagesContainTheSourcesOfTheirPrograms(t *testing.T) {
	const root = "../.."
	allowed := readFile(t, filepath.Join(root, ".dockerignore"))
	copied := readFile(t, filepath.Join(root, "Dockerfile"))
	for program, recipe := range map[string]string{
		"./cmd/yardmaster":     copied,
		"./cmd/session-runner": copied,
		"./examples/worker":    "", // its Dockerfile copies everything that .dockerignore allows
		"./test/loadgen":       "",
	} {
		for _, file := range embeddedFiles(t, root, program) {
			pattern := "!" + filepath.Dir(file) + "/*" + filepath.Ext(file) + "\n"
			require.True(t, strings.Contains(allowed, pattern), "%s needs %s, which .dockerignore excludes", program, file)
		}
		for _, directory := range packageDirectories(t, root, program) {
			require.True(t, strings.Contains(allowed, "!"+directory+"/**/*.go\n"), "%s needs %s, which .dockerignore excludes", program, directory)
			require.True(t, recipe == "" || strings.Contains(recipe, "COPY "+directory+"/ "+directory+"/\n"), "the Dockerfile lacks %s", directory)
		}
	}
}

func readFile(t *testing.T, path string) string {
	content, err := os.ReadFile(filepath.Clean(path))
	require.NoError(t, err)
	return string(content)
}

// packageDirectories returns the top-level directories of a program's packages. For test, it
// returns the directories below it.
func packageDirectories(t *testing.T, root, program string) []string {
	const module = "github.com/yardmaster/yardmaster/"
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", program)
	list.Dir = root
	output, err := list.Output()
	require.NoError(t, err)
	seen, directories := map[string]bool{}, []string(nil)
	for path := range strings.Lines(string(output)) {
		path, found := strings.CutPrefix(strings.TrimSpace(path), module)
		if !found {
			continue
		}
		parts := strings.Split(path, "/")
		directory := parts[0]
		if directory == "test" {
			directory += "/" + parts[1]
		}
		if !seen[directory] {
			seen[directory], directories = true, append(directories, directory)
		}
	}
	require.True(t, len(directories) != 0, "%s needs no directory of this module", program)
	return directories
}

// embeddedFiles returns the files of this module that a program contains.
func embeddedFiles(t *testing.T, root, program string) []string {
	const format = `{{if eq .Module.Path "github.com/yardmaster/yardmaster"}}{{range .EmbedFiles}}{{$.ImportPath}}/{{.}}{{"\n"}}{{end}}{{end}}`
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{with $}}"+format+"{{end}}{{end}}", program)
	list.Dir = root
	output, err := list.Output()
	require.NoError(t, err)
	var files []string
	for path := range strings.Lines(string(output)) {
		if path, found := strings.CutPrefix(strings.TrimSpace(path), "github.com/yardmaster/yardmaster/"); found {
			files = append(files, path)
		}
	}
	return files
}

// tag removes gRPC's pages of traces, whose templates call methods by name. In a program that does so, the linker
// keeps all exported methods, and the operator has 73 MB instead of 53, most of which is resident.
const tag = "grpcnotrace"

func TestTheLinkerRemovesUnusedMethodsOfTheOperator(t *testing.T) {
	build := exec.CommandContext(t.Context(), "go", "build", "-tags="+tag, "-ldflags=-dumpdep", "-o", filepath.Join(t.TempDir(), "yardmaster"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	require.True(t, err == nil, "%v\n%s", err, output)
	require.True(t, len(output) != 0, "the linker printed no dependencies")
	for line := range strings.Lines(string(output)) {
		require.True(t, !strings.Contains(line, "<ReflectMethod>"), "methods are called by name, so that all are kept: %s", line)
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
		require.True(t, strings.Contains(readFile(t, filepath.Join(root, path)), want), "%s does not contain %q", path, want)
	}
}

func TestVersionIsACommandOfTheOperatorAndOfTheWorker(t *testing.T) {
	for args, want := range map[string]bool{
		"version": true, "worker version": true, "egress-proxy version": true,
		"": false, "worker": false, "worker --exec -- version": false, "version worker": false,
	} {
		got := isVersionCommand(strings.Fields(args))
		require.True(t, got == want, "%q: %t, want %t", args, got, want)
	}
}
