// Command mutation measures how many small changes of packages their tests find. For each package it draws mutants with a seed,
// compiles all of them once, each behind a switch, and runs the tests against one after another. It prints the mutants that
// survive, and fails if less than 90 % of the mutants of a package die.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// equivalents lists mutants that behave like the original: the key of the mutant, and in the next line, indented, the reason.
//
//go:embed equivalent.txt
var equivalents string

var (
	count     = flag.Int("mutants", 300, "mutants of each package")
	seed      = flag.Uint64("seed", 1, "seed of the draw")
	processes = flag.Int("p", 2, "tests that run at the same time")
	slow      = flag.String("slow", "Simulat|GuaranteesHold|ConstantLoad|AYearOfJobs|ReleasesOfEach|EveryChangeOfTheClocks|WorkIsUndone", "tests that match this expression run only against mutants that survive the others")
)

const required = 90 // percent

func main() {
	flag.Parse()
	failed := false
	for _, path := range flag.Args() {
		passed, err := measure(context.Background(), path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "mutation of %s: %v\n", path, err)
		}
		failed = failed || err != nil || !passed
	}
	if failed {
		os.Exit(1)
	}
}

// measure runs the tests of a package against its mutants.
func measure(ctx context.Context, path string) (passed bool, _ error) {
	started := time.Now()
	directory, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(directory)
	pkg, err := load(ctx, path)
	if err != nil {
		return false, err
	}
	mutants, err := pkg.draw()
	if err != nil {
		return false, err
	}
	binary, err := pkg.compile(ctx, directory, mutants)
	if err != nil {
		return false, err
	}
	survivors, err := run(ctx, binary, pkg.Dir, mutants)
	if err != nil {
		return false, err
	}
	for _, mutant := range survivors {
		fmt.Printf("line %d: %s\n", mutant.Position.Line, mutant.Key)
	}
	dead := len(mutants) - len(survivors)
	fmt.Printf("%s: %d of %d mutants died (of %d), %d survived, %s\n",
		pkg.ImportPath, dead, len(mutants), len(pkg.mutants), len(survivors), time.Since(started).Round(time.Second))
	return dead*100 >= required*len(mutants), nil
}

// listed is a package as `go list` prints it, and its mutants.
type listed struct {
	ImportPath, Name, Dir, Export string
	GoFiles                       []string
	Module                        *struct{ Dir string }

	sources map[string][]byte
	mutants []*Mutant
	files   map[*Mutant]string
}

// load reads a package, and finds its mutants.
func load(ctx context.Context, path string) (*listed, error) {
	output, err := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json", path).Output()
	if err != nil {
		return nil, explained(err)
	}
	exports := map[string]string{}
	var pkg *listed // the last package is the named package
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		next := &listed{sources: map[string][]byte{}, files: map[*Mutant]string{}}
		if err := decoder.Decode(next); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		pkg = next
		exports[pkg.ImportPath] = pkg.Export
	}
	fset := token.NewFileSet()
	files := map[string]*ast.File{}
	for _, name := range pkg.GoFiles {
		file := filepath.Join(pkg.Dir, name)
		pkg.sources[file], err = os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		files[file], err = parser.ParseFile(fset, file, pkg.sources[file], parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	_, err = config.Check(pkg.ImportPath, fset, slices.Collect(maps.Values(files)), info)
	if err != nil {
		return nil, err
	}
	repeated := map[string]int{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		name, err := filepath.Rel(pkg.Module.Dir, file)
		if err != nil {
			return nil, err
		}
		f := &finder{fset: fset, info: info, name: name, source: pkg.sources[file]}
		f.find(files[file])
		for _, mutant := range f.mutants {
			pkg.files[mutant] = file
			mutant.Position.Filename = name
			repeated[mutant.Key]++
			if repeated[mutant.Key] > 1 {
				mutant.Key += fmt.Sprintf(" #%d", repeated[mutant.Key])
			}
		}
		pkg.mutants = append(pkg.mutants, f.mutants...)
	}
	return pkg, nil
}

// draw chooses mutants that are not listed as equivalent. It fails if a listed mutant no longer exists.
func (p *listed) draw() ([]*Mutant, error) {
	unused := map[string]bool{}
	for line := range strings.Lines(equivalents) {
		file, _, isKey := strings.Cut(line, " ")
		if isKey && filepath.Dir(file) == strings.TrimPrefix(p.Dir, p.Module.Dir+"/") {
			unused[strings.TrimSpace(line)] = true
		}
	}
	var candidates []*Mutant
	for _, mutant := range p.mutants {
		if unused[mutant.Key] {
			delete(unused, mutant.Key)
		} else {
			candidates = append(candidates, mutant)
		}
	}
	if len(unused) > 0 {
		return nil, fmt.Errorf("equivalent.txt lists mutants that do not exist: %q", slices.Sorted(maps.Keys(unused)))
	}
	var drawn []*Mutant
	random := rand.New(rand.NewPCG(*seed, 0)) //nolint:gosec // a draw that can be repeated
	indices := random.Perm(len(candidates))[:min(*count, len(candidates))]
	for i, index := range slices.Sorted(slices.Values(indices)) { // in the order of the source, as rewrite needs them
		candidates[index].ID = i + 1
		drawn = append(drawn, candidates[index])
	}
	return drawn, nil
}

// compile builds the tests with all mutants behind their switches.
func (p *listed) compile(ctx context.Context, directory string, mutants []*Mutant) (binary string, _ error) {
	replaced := map[string]string{}
	replace := func(file, text string) error {
		replaced[file] = filepath.Join(directory, filepath.Base(file))
		return os.WriteFile(replaced[file], []byte(text), 0o600)
	}
	inFile := map[string][]*Mutant{}
	for _, mutant := range mutants {
		inFile[p.files[mutant]] = append(inFile[p.files[mutant]], mutant)
	}
	for file, mutants := range inFile {
		err := replace(file, rewrite(p.sources[file], mutants))
		if err != nil {
			return "", err
		}
	}
	err := replace(filepath.Join(p.Dir, "zz_mutants.go"), fmt.Sprintf(switches, p.Name))
	if err != nil {
		return "", err
	}
	encoded, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(directory, "overlay.json")
	err = os.WriteFile(overlay, encoded, 0o600)
	if err != nil {
		return "", err
	}
	binary = filepath.Join(directory, "mutants.test")
	output, err := exec.CommandContext(ctx, "go", "test", "-vet=off", "-overlay", overlay, "-c", "-o", binary, p.ImportPath).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	_, err = os.Stat(binary)
	if err != nil {
		return "", errors.New("the package has no tests")
	}
	return binary, nil
}

// run returns the mutants that survive the tests: first those that are fast, then the rest.
func run(ctx context.Context, binary, directory string, mutants []*Mutant) ([]*Mutant, error) {
	for _, selection := range [][]string{{"-test.skip", *slow}, {"-test.run", *slow}} {
		limit, output, err := test(ctx, binary, directory, 0, time.Hour, selection)
		if err != nil {
			return nil, fmt.Errorf("without a mutant: %w: %s", err, output)
		}
		limit = 2*time.Second + 4*limit
		survives := make([]bool, len(mutants))
		slots := make(chan struct{}, *processes)
		var waiting sync.WaitGroup
		for i, mutant := range mutants {
			slots <- struct{}{}
			waiting.Go(func() {
				_, _, err := test(ctx, binary, directory, mutant.ID, limit, selection)
				survives[i] = err == nil
				<-slots
			})
		}
		waiting.Wait()
		var survivors []*Mutant
		for i, mutant := range mutants {
			if survives[i] {
				survivors = append(survivors, mutant)
			}
		}
		mutants = survivors
	}
	return mutants, nil
}

// test runs tests with a limit of computing time, which ends endless loops and does not depend on what else the machine does, of
// memory, and of time for a mutant that waits. It returns the computing time.
func test(ctx context.Context, binary, directory string, id int, limit time.Duration, selection []string) (used time.Duration, output []byte, _ error) {
	ctx, cancel := context.WithTimeout(ctx, 30*limit)
	defer cancel()
	script := fmt.Sprintf(`ulimit -t %d && ulimit -v 8000000 && exec "$@"`, int(limit.Seconds()))
	arguments := append([]string{"-c", script, "sh", binary, "-test.short", "-test.failfast", "-test.count=1"}, selection...)
	command := exec.CommandContext(ctx, "sh", arguments...)
	command.Dir = directory
	command.Env = append(os.Environ(), fmt.Sprintf("MUTANT=%d", id), "GOMAXPROCS=1", "GOTRACEBACK=none")
	output, err := command.CombinedOutput()
	return command.ProcessState.UserTime() + command.ProcessState.SystemTime(), output, err
}

func explained(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return err
}
