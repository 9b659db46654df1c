package harness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// InterruptControlPlane kills the API server, and etcd and all controllers with it, has them started again
// after that time, and returns when /readyz answers. It tells how long it was away, the time
// that it takes to start included.
func (c *Cluster) InterruptControlPlane(ctx context.Context, d time.Duration) (away time.Duration, err error) {
	controlPlane, err := c.findComponentProcess("control-plane")
	if err != nil {
		return 0, err
	}
	supervisor, err := parentProcessID(controlPlane)
	if err != nil {
		return 0, err
	}
	// A supervisor that is stopped starts nothing.
	if err := syscall.Kill(supervisor, syscall.SIGSTOP); err != nil {
		return 0, fmt.Errorf("stopping the supervisor: %w", err)
	}
	began := time.Now()
	err = errors.Join(syscall.Kill(controlPlane, syscall.SIGKILL), SleepContext(ctx, d))
	if err := errors.Join(err, syscall.Kill(supervisor, syscall.SIGCONT)); err != nil {
		return 0, fmt.Errorf("killing the control plane: %w", err)
	}
	err = c.waitUntilReady(ctx)
	return time.Since(began), err
}

// waitUntilReady asks often, and each time anew: a connection that waits to be tried again would
// tell late.
func (c *Cluster) waitUntilReady(ctx context.Context) error {
	config := rest.CopyConfig(c.Config)
	config.Timeout = time.Second
	const often, patience = 10 * time.Millisecond, 2 * time.Minute
	asking, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		asking.CloseIdleConnections()
		if isResponseOK(ctx, asking, config.Host+"/readyz") {
			return nil
		}
		if err := SleepContext(ctx, often); err != nil {
			return err
		}
	}
	return fmt.Errorf("the API server is not back within %s", patience)
}

func isResponseOK(ctx context.Context, asking *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	response, err := asking.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// findComponentProcess finds the process of a component of the local cluster by what its environment
// says. Its kubeconfig lies in the cluster's own directory.
func (c *Cluster) findComponentProcess(component string) (pid int, err error) {
	directory := filepath.Dir(filepath.Dir(c.Kubeconfig))
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environment, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil { // somebody else's
			continue
		}
		text := "\x00" + string(environment)
		if strings.Contains(text, "\x00LOCALCLUSTER_DIR="+directory+"\x00") && strings.Contains(text, "\x00LOCALCLUSTER_COMPONENT="+component+"\x00") {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no %s runs for %s: outages need a local cluster", component, directory)
}

func parentProcessID(pid int) (int, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return strconv.Atoi(fields[1])
}
