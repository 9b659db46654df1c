// Package harness contains what the benchmarks share: a control plane, a release build of the operator, brokers, and measurements of processes.
package harness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const (
	clusterName        = "bench"
	localclusterBinary = "bin/localcluster"
)

// Cluster is the control plane on which a benchmark runs.
type Cluster struct{ *testenv.Cluster }

// OpenCluster connects to the control plane of a kubeconfig and installs the CustomResourceDefinitions. If kubeconfig is empty, it starts a local
// control plane. Call the returned function at the end.
func OpenCluster(ctx context.Context, kubeconfig string) (*Cluster, func(), error) {
	if kubeconfig == "" {
		c, err := StartCluster(ctx)
		if err != nil {
			return nil, nil, err
		}
		return c, func() { c.StopControlPlane(ctx) }, nil
	}
	c, err := ConnectToCluster(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	return c, func() {}, c.InstallCRDs(ctx)
}

// StartCluster starts a local control plane and installs the CustomResourceDefinitions.
func StartCluster(ctx context.Context) (*Cluster, error) {
	if err := RunCommand(ctx, localclusterBinary, "up", "--mode", "control-plane", "--name", clusterName); err != nil {
		return nil, err
	}
	kubeconfig, err := exec.CommandContext(ctx, localclusterBinary, "kubeconfig", "--name", clusterName).Output()
	if err != nil {
		return nil, fmt.Errorf("getting the kubeconfig: %w", err)
	}
	c, err := ConnectToCluster(strings.TrimSpace(string(kubeconfig)))
	if err != nil {
		return nil, err
	}
	return c, c.InstallCRDs(ctx)
}

// ConnectToCluster connects to a running cluster.
func ConnectToCluster(kubeconfig string) (*Cluster, error) {
	c, err := testenv.Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	return &Cluster{c}, nil
}

// StopControlPlane stops the local control plane, even if ctx has ended.
func (*Cluster) StopControlPlane(ctx context.Context) {
	if err := RunCommand(context.WithoutCancel(ctx), localclusterBinary, "down", "--name", clusterName); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// InterruptControlPlane kills the process of the API server, etcd and all controllers, lets it start again after the given time, and returns when
// /readyz succeeds. The returned downtime includes the time that the start takes.
func (c *Cluster) InterruptControlPlane(ctx context.Context, pause time.Duration) (downtime time.Duration, err error) {
	return c.KillControlPlane(ctx, func(string) error { return clock.SleepContext(ctx, pause) })
}

// KillControlPlane kills the process of the API server, etcd and all controllers, calls do with the
// directory of etcd's data, starts the process again, and returns when /readyz succeeds.
func (c *Cluster) KillControlPlane(ctx context.Context, do func(etcd string) error) (downtime time.Duration, err error) {
	controlPlane, err := c.findComponentProcess("control-plane")
	if err != nil {
		return 0, err
	}
	supervisor, err := parentProcessID(controlPlane)
	if err != nil {
		return 0, err
	}
	// A stopped supervisor does not restart the control plane.
	if err := syscall.Kill(supervisor, syscall.SIGSTOP); err != nil {
		return 0, fmt.Errorf("stopping the supervisor: %w", err)
	}
	killedAt := time.Now()
	if err = syscall.Kill(controlPlane, syscall.SIGKILL); err == nil {
		err = errors.Join(waitUntilExited(ctx, controlPlane), do(filepath.Join(c.directory(), "etcd")))
	}
	if err := errors.Join(err, syscall.Kill(supervisor, syscall.SIGCONT)); err != nil {
		return 0, fmt.Errorf("killing the control plane: %w", err)
	}
	err = c.waitUntilReady(ctx)
	return time.Since(killedAt), err
}

// PauseControlPlane stops the process of the API server, etcd and all controllers while do runs with
// the directory of etcd's data, whose files then are as after a crash.
func (c *Cluster) PauseControlPlane(ctx context.Context, do func(etcd string) error) error {
	controlPlane, err := c.findComponentProcess("control-plane")
	if err != nil {
		return err
	}
	if err := syscall.Kill(controlPlane, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pausing the control plane: %w", err)
	}
	err = PollUntil(ctx, time.Minute, func() (bool, error) {
		state, err := processStatus(controlPlane)
		return err == nil && state[0] == "T", err
	})
	if err == nil {
		err = do(filepath.Join(c.directory(), "etcd"))
	}
	return errors.Join(err, syscall.Kill(controlPlane, syscall.SIGCONT))
}

// RestartComponent kills the process of a component of the local cluster, which starts it again.
func (c *Cluster) RestartComponent(component string) error {
	pid, err := c.findComponentProcess(component)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing %s: %w", component, err)
	}
	return nil
}

// waitUntilExited waits until a killed process has closed its files. It stays a zombie while its supervisor is stopped.
func waitUntilExited(ctx context.Context, pid int) error {
	return PollUntil(ctx, time.Minute, func() (bool, error) {
		state, err := processStatus(pid)
		return err != nil || state[0] == "Z", nil //nolint:nilerr // no process, no status
	})
}

// directory returns the directory of the local cluster, which contains the kubeconfig.
func (c *Cluster) directory() string { return filepath.Dir(filepath.Dir(c.Kubeconfig)) }

// waitUntilReady opens a new connection for each request. An existing connection could wait for a retry and delay the result.
func (c *Cluster) waitUntilReady(ctx context.Context) error {
	config := rest.CopyConfig(c.Config)
	config.Timeout = time.Second
	const interval, timeout = 10 * time.Millisecond, 2 * time.Minute
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(timeout)
	for time.Now().Before(deadline) {
		client.CloseIdleConnections()
		if isResponseOK(ctx, client, config.Host+"/readyz") {
			return nil
		}
		if err := clock.SleepContext(ctx, interval); err != nil {
			return err
		}
	}
	return fmt.Errorf("the API server is not ready within %s", timeout)
}

func isResponseOK(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// findComponentProcess finds the process of a component of the local cluster by its environment. The kubeconfig is in the cluster's directory.
func (c *Cluster) findComponentProcess(component string) (pid int, err error) {
	directory := c.directory()
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
		if err != nil { // a process of another user
			continue
		}
		text := "\x00" + string(environment)
		if strings.Contains(text, "\x00LOCALCLUSTER_DIR="+directory+"\x00") && strings.Contains(text, "\x00LOCALCLUSTER_COMPONENT="+component+"\x00") {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no process of %s found for %s: outages require a local cluster", component, directory)
}

func parentProcessID(pid int) (int, error) {
	fields, err := processStatus(pid)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields[1])
}

// processStatus returns the fields of /proc/PID/stat after the command: the state, the parent's process ID and others.
func processStatus(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])), nil
}
