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
)

const root = "../.."

// The first stage of each Dockerfile builds session-runner from what the Dockerfile copies and .dockerignore lets through. All other
// images are public, and the agents have the versions that the tests use.
func TestImagesOfAgentsAreBuiltFromACheckout(t *testing.T) {
	paths, err := filepath.Glob("*/Dockerfile")
	if err != nil || len(paths) != 4 {
		t.Fatalf("Dockerfiles %v: %v", paths, err)
	}
	raw, err := os.ReadFile(filepath.Join(root, "test/agents/package.json"))
	if err != nil {
		t.Fatal(err)
	}
	tested := struct{ Dependencies map[string]string }{}
	if err := json.Unmarshal(raw, &tested); err != nil {
		t.Fatal(err)
	}
	stages := map[string]string{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		for _, image := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(text, -1) {
			if image[1] != "golang:1.26.8" && image[1] != "node:24-slim" {
				t.Errorf("%s starts from %s", path, image[1])
			}
		}
		agent := regexp.MustCompile(`--no-fund (\S+)@(\S+)`).FindStringSubmatch(text)
		if len(agent) != 3 || tested.Dependencies[agent[1]] != agent[2] {
			t.Errorf("%s installs %v, and the tests %v", path, agent, tested.Dependencies)
		}
		if !strings.Contains(text, "-f examples/agents/"+path+" .") {
			t.Errorf("%s does not say how it is built", path)
		}
		_, stage, _ := strings.Cut(text, "AS session-runner\n")
		stage, _, _ = strings.Cut(stage, "\nFROM")
		stages[stage] = path
	}
	if len(stages) != 1 {
		t.Fatalf("the first stages of the Dockerfiles differ: %v", stages)
	}
	for stage := range stages {
		loadStage(t, stage)
	}
}

// maxCostUSD of the examples holds only for a model with a price.
func TestModelsOfTheExamplesHaveABuiltInPrice(t *testing.T) {
	prices, err := os.ReadFile(filepath.Join(root, "internal/pod/modelproxy/prices.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("*/agent.yaml")
	if err != nil || len(paths) != 4 {
		t.Fatalf("examples %v: %v", paths, err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		model := regexp.MustCompile(`(?m)^ {4}model: (?:\S+/)?(\S+)$`).FindStringSubmatch(string(raw))
		if len(model) != 2 || !strings.Contains(string(prices), "\n  "+model[1]+": {") {
			t.Errorf("%s: model %v", path, model)
		}
	}
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
	if len(packages) != 2 {
		t.Fatalf("the stage has no go build: %s", stage)
	}
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", packages[1]) // compiling takes long, and is that of other tests
	command.Dir, command.Env = directory, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("packages or files are missing: %v: %s", err, out)
	}
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
	if err != nil || copied == 0 {
		t.Fatalf("COPY %s: %d files, %v", source, copied, err)
	}
}
