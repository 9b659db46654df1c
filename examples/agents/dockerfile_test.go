// Package agents has examples of agents as runners of sessions.
package agents

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

const root = "../.."

// The first stage of each Dockerfile builds session-runner from what the Dockerfile copies and .dockerignore lets through. All other
// images are public, and the agents have the versions that the tests use.
func TestImagesOfAgentsAreBuiltFromACheckout(t *testing.T) {
	paths, err := filepath.Glob("*/Dockerfile")
	require.True(t, err == nil && len(paths) == 4, "Dockerfiles %v: %v", paths, err)
	tested := struct{ Dependencies map[string]string }{}
	require.NoError(t, json.Unmarshal([]byte(readText(t, filepath.Join(root, "test/agents/package.json"))), &tested))
	stages := map[string]string{}
	for _, path := range paths {
		text := readText(t, path)
		for _, image := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(text, -1) {
			if image[1] != "golang:1.26.8" && image[1] != "node:24-slim" {
				t.Errorf("%s starts from %s", path, image[1])
			}
		}
		agent := regexp.MustCompile(`--no-fund (\S+)@(\S+)`).FindStringSubmatch(text)
		if len(agent) != 3 || tested.Dependencies[agent[1]] != agent[2] {
			t.Errorf("%s installs %v, and the tests %v", path, agent, tested.Dependencies)
		}
		require.Contains(t, text, "-f examples/agents/"+path+" .") // it says how it is built
		_, stage, _ := strings.Cut(text, "AS session-runner\n")
		stage, _, _ = strings.Cut(stage, "\nFROM")
		stages[stage] = path
	}
	require.True(t, len(stages) == 1, "the first stages of the Dockerfiles differ: %v", stages)
	for stage := range stages {
		loadStage(t, stage)
	}
}

// maxCostUSD of the examples holds only for a model with a price.
func TestModelsOfTheExamplesHaveABuiltInPrice(t *testing.T) {
	prices := readText(t, filepath.Join(root, "internal/pod/modelproxy/prices.yaml"))
	paths, err := filepath.Glob("*/agent.yaml")
	require.True(t, err == nil && len(paths) == 4, "examples %v: %v", paths, err)
	for _, path := range paths {
		model := regexp.MustCompile(`(?m)^ {4}model: (?:\S+/)?(\S+)$`).FindStringSubmatch(readText(t, path))
		require.True(t, len(model) == 2 && strings.Contains(prices, "\n  "+model[1]+": {"), "%s: model %v", path, model)
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(raw)
}

// loadStage runs COPY of a stage, and checks that go build then finds all packages and files.
func loadStage(t *testing.T, stage string) {
	t.Helper()
	directory := t.TempDir()
	for _, line := range regexp.MustCompile(`(?m)^COPY (.*) \S+$`).FindAllStringSubmatch(stage, -1) {
		for source := range strings.FieldsSeq(line[1]) {
			copySources(t, source, directory)
		}
	}
	packages := regexp.MustCompile(`(?m)go build .* (\./\S+)$`).FindStringSubmatch(stage)
	require.True(t, len(packages) == 2, "the stage has no go build: %s", stage)
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", packages[1]) // compiling takes long, and is that of other tests
	command.Dir, command.Env = directory, append(os.Environ(), "CGO_ENABLED=0")
	out, err := command.CombinedOutput()
	require.True(t, err == nil, "packages or files are missing: %v: %s", err, out)
}

// copySources copies the files that .dockerignore lets through.
func copySources(t *testing.T, source, to string) {
	t.Helper()
	copied := 0
	err := filepath.WalkDir(filepath.Join(root, source), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		isSent := strings.HasSuffix(name, ".go") || name == "go.mod" || name == "go.sum" ||
			filepath.Ext(name) == ".yaml" && (filepath.Dir(name) == "internal/pod/agentprofile/profiles" || filepath.Dir(name) == "internal/pod/modelproxy")
		if !isSent || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		copied++
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
			return err
		}
		return os.WriteFile(target, raw, 0o600)
	})
	require.True(t, err == nil && copied > 0, "COPY %s: %d files, %v", source, copied, err)
}
