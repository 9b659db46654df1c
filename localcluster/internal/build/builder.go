package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/yardmaster/yardmaster/localcluster/internal/progress"
)

// Builder builds parts from Source, the localcluster module, into Cache.
type Builder struct {
	Source   string
	Cache    string
	Progress *progress.Printer
}

// Programs says in which directory the programs of each part are.
type Programs map[string]string

// Path returns where a program of a part is.
func (p Programs) Path(part Part, program string) string {
	return filepath.Join(p[part.Name], program)
}

// Build builds the parts that are not in the cache yet.
func (b Builder) Build(ctx context.Context, parts []Part) (Programs, error) {
	plan, err := b.plan(ctx, parts)
	if err != nil {
		return nil, err
	}
	programs := Programs{}
	for _, item := range plan {
		programs[item.part.Name] = item.dir
	}
	missing := slices.DeleteFunc(plan, item.built)
	if len(missing) == 0 {
		return programs, nil
	}
	b.Progress.Printf("building from Go modules, once; this takes some minutes:")
	return programs, b.buildAll(ctx, missing)
}

func (b Builder) buildAll(ctx context.Context, missing []item) error {
	var background sync.WaitGroup
	defer background.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, item := range missing {
		if item.built() { // by a concurrent run
			continue
		}
		step := func(report progress.Report) error {
			packages, err := item.load(ctx, report)
			if err != nil {
				return err
			}
			if i == 0 { // not earlier, because the first part would be downloaded more slowly
				background.Go(func() { download(ctx, missing[1:]) })
			}
			return b.build(ctx, item, packages, report)
		}
		if err := b.Progress.Step("building "+item.part.String(), "built "+item.part.String(), step); err != nil {
			return err
		}
	}
	return nil
}

// Missing returns the parts that Build would have to build.
func (b Builder) Missing(ctx context.Context, parts []Part) ([]Part, error) {
	plan, err := b.plan(ctx, parts)
	if err != nil {
		return nil, err
	}
	var missing []Part
	for _, item := range plan {
		if !item.built() {
			missing = append(missing, item.part)
		}
	}
	return missing, nil
}

type item struct {
	part   Part
	module string // the directory of its sources
	dir    string // the directory of its programs
}

func (i item) built() bool {
	_, err := os.Stat(i.dir)
	return err == nil
}

func (b Builder) plan(ctx context.Context, parts []Part) ([]item, error) {
	goVersion, err := goVersion(ctx)
	if err != nil {
		return nil, err
	}
	var plan []item
	for _, part := range parts {
		module := filepath.Join(b.Source, "modules", part.Name)
		key, err := part.key(module, goVersion)
		if err != nil {
			return nil, err
		}
		plan = append(plan, item{part, module, filepath.Join(b.Cache, part.Name+"-"+key)})
	}
	return plan, nil
}

// build leaves either all programs of a part in place or none.
func (b Builder) build(ctx context.Context, item item, packages int, report progress.Report) error {
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(b.Cache, ".building-"+item.part.Name+"-")
	if err != nil {
		return err
	}
	// It also contains the files that a go command leaves when it is killed.
	defer os.RemoveAll(temporary)

	programs := filepath.Join(temporary, "programs")
	if err := os.Mkdir(programs, 0o755); err != nil {
		return err
	}
	if err := item.compile(ctx, programs, temporary, packages, report); err != nil {
		return err
	}
	if err := os.Chmod(programs, 0o755); err != nil { // whatever the umask is
		return err
	}
	if err := os.Rename(programs, item.dir); err != nil && !item.built() { // built by a concurrent run
		return err
	}
	return nil
}

func goVersion(ctx context.Context) (string, error) {
	command := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	command.Env = append(os.Environ(), "GOTOOLCHAIN=local")
	output, err := command.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("the go command is needed to build the cluster's programs: see https://go.dev/dl")
	}
	if err != nil {
		return "", fmt.Errorf("running go env: %w", err)
	}
	return strings.Join(strings.Fields(string(output)), " "), nil
}
