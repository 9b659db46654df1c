package testenv

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// Process is a process that a test has started.
type Process struct {
	command *exec.Cmd
	exited  chan struct{}
}

// StartProcess starts a command.
func StartProcess(command *exec.Cmd) (*Process, error) {
	// The kernel kills the process when the test program ends, also if a timeout or a signal ends it before its cleanups run.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &Process{command: command, exited: make(chan struct{})}
	go func() {
		_ = command.Wait() // State says how it ended
		close(p.exited)
	}()
	return p, nil
}

// Pid returns the ID of the process.
func (p *Process) Pid() int { return p.command.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State returns how the process has ended. Call it only after the end.
func (p *Process) State() *os.ProcessState { return p.command.ProcessState }

// Stop interrupts the process and waits for its end.
func (p *Process) Stop() { p.end(os.Interrupt) }

// Kill kills the process, which then cannot clean up, and waits for its end.
func (p *Process) Kill() { p.end(os.Kill) }

func (p *Process) end(signal os.Signal) {
	_ = p.command.Process.Signal(signal) // it may have ended
	<-p.exited
}

// Run runs a command in the root of the repository, and returns its output.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = Root()
	var output, problems bytes.Buffer
	command.Stdout, command.Stderr = &output, &problems
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, problems.String())
	}
	return output.String()
}

// Decode returns the objects of a manifest.
func Decode(t testing.TB, manifest string) (objects []*unstructured.Unstructured) {
	t.Helper()
	documents := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := documents.Decode(object); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}

// BuildOperator builds the operator as in a release, once, and returns the path of the binary.
var BuildOperator = sync.OnceValues(func() (binary string, err error) {
	binary = filepath.Join(Root(), "bin", "yardmaster-test")
	command := exec.CommandContext(context.Background(), "go", "build", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", binary, "./cmd/yardmaster")
	command.Dir = Root()
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the operator: %w\n%s", err, output)
	}
	return binary, nil
})

// Operator is a process of the operator.
type Operator struct {
	*Process

	// LogFile is the path of its log, an artifact.
	LogFile string
}

// operators is the number of operators that this program has started.
var operators atomic.Int32

// StartOperator starts an operator with more flags, and waits until it is ready. The end of ctx kills it. It serves
// nothing but the health checks, and may use brokers on this machine.
func StartOperator(ctx context.Context, binary string, c *Cluster, flags ...string) (*Operator, error) {
	common := []string{"--leader-elect=false", "--webhook=false", "--session-policies=", "--approval-policies=", "--allow-local-brokers", "--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0"}
	command := exec.CommandContext(ctx, binary, append(common, flags...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	log, err := os.Create(Artifact(fmt.Sprintf("operator-%d.log", operators.Add(1))))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	o := &Operator{LogFile: log.Name()}
	if o.Process, err = StartProcess(command); err != nil {
		return nil, err
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		<-o.Exited()
		end(fmt.Errorf("the operator has ended (%v); its log is %s", o.State(), o.LogFile))
	}()
	if err := poll.UntilNil(running, func() error {
		_, err := o.get(running, "health", "/readyz")
		return err
	}); err != nil {
		o.Kill()
		return nil, fmt.Errorf("waiting for the operator to be ready: %w", err)
	}
	return o, nil
}

// MetricsFlags are the flags of an operator whose Metrics can be read.
func MetricsFlags() []string {
	return []string{"--metrics-bind-address=127.0.0.1:0", "--metrics-secure=false"}
}

// Metrics returns the metrics in the text format.
func (o *Operator) Metrics(ctx context.Context) ([]byte, error) {
	return o.get(ctx, "metrics", "/metrics")
}

// get requests a path of one of the operator's servers.
func (o *Operator) get(ctx context.Context, server, path string) ([]byte, error) {
	address, err := o.addressOf(server)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, response.Status, body)
	}
	return body, err
}

// addressOf returns the address of a server, whose port the operator has chosen, from the log.
func (o *Operator) addressOf(server string) (string, error) {
	log, err := os.ReadFile(o.LogFile)
	if err != nil {
		return "", err
	}
	for lines := bufio.NewScanner(bytes.NewReader(log)); lines.Scan(); {
		var line struct{ Msg, Name, Addr string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "starting server" && line.Name == server {
			return line.Addr, nil
		}
	}
	return "", fmt.Errorf("the server %s has not started: see %s", server, o.LogFile)
}

// MetricValues returns the values of the operator's gauges or counters with this name, by their label values, which are joined by
// commas and sorted by the names of the labels.
func MetricValues(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, label := range m.GetLabel() {
				values = append(values, label.GetValue())
			}
			found[strings.Join(values, ",")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}
