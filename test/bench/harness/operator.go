package harness

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// healthAddress is where the operator serves health checks.
var healthAddress = sync.OnceValue(freeAddress)

// OperatorLog returns the file with the log of the operator, in dist.
func OperatorLog() string { return filepath.Join("dist", filepath.Base(os.Args[0])+"-operator.log") }

// BuildOperator builds the operator as in a release, and returns the path of the binary.
func BuildOperator(ctx context.Context) (string, error) {
	const binary = "bin/yardmaster-bench"
	return binary, RunCommand(ctx, "go", "build", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", binary, "./cmd/yardmaster")
}

// StartOperator starts the operator with additional flags, and waits until it is ready.
func StartOperator(ctx context.Context, binary string, c *Cluster, flags ...string) (*exec.Cmd, error) {
	common := []string{"--leader-elect=false", "--webhook=false", "--metrics-bind-address=0", "--health-probe-bind-address=" + healthAddress()}
	command := exec.CommandContext(ctx, binary, append(common, flags...)...)
	// A variable, because operators of older versions have no such flag.
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "YARDMASTER_ALLOW_LOCAL_BROKERS=true")
	if err := os.MkdirAll("dist", 0o755); err != nil { //nolint:gosec // build output
		return nil, err
	}
	log, err := os.Create(OperatorLog())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return nil, err
	}
	return command, PollUntil(ctx, time.Minute, func() (bool, error) { return isOperatorReady(ctx), nil })
}

func isOperatorReady(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+healthAddress()+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
