package testenv

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/yardmaster/yardmaster/test/poll"
)

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
	if err := poll.UntilNil(running, func() error { return o.checkReady(running) }); err != nil {
		o.Kill()
		return nil, fmt.Errorf("waiting for the operator to be ready: %w", err)
	}
	return o, nil
}

func (o *Operator) checkReady(ctx context.Context) error {
	_, err := o.get(ctx, "health", "/readyz")
	return err
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
