package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/yardmaster/yardmaster/localcluster/internal/component"
	"github.com/yardmaster/yardmaster/localcluster/internal/process"
)

// LoadImage imports an archive, docker's or OCI's, into the node's containerd.
// It returns whether there was a node to load it into.
func (c *Cluster) LoadImage(ctx context.Context, file string) (bool, error) {
	r, err := c.running()
	if err != nil || r.Mode == ControlPlane {
		return false, err
	}
	if _, err := os.Stat(file); err != nil {
		return false, err
	}
	socket, err := c.nodePath(component.ContainerdSocket)
	if err != nil {
		return false, err
	}
	args := importImage(r.Programs, socket, file)
	if output, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return false, fmt.Errorf("importing %s: %w\n%s", file, err, output)
	}
	return true, nil
}

// Kubectl returns the path of the built-in kubectl's program; its first
// argument is "kubectl".
func (c *Cluster) Kubectl() (string, error) {
	r, err := c.running()
	if err != nil {
		return "", err
	}
	return r.kubernetes(), nil
}

// running returns ErrDown if the cluster is not up.
func (c *Cluster) running() (*record, error) {
	r, err := c.read()
	if err != nil {
		return nil, err
	}
	alive, err := c.alive()
	if err != nil {
		return nil, err
	}
	if r == nil || !alive {
		return nil, ErrDown
	}
	return r, nil
}

// nodePath is where the host finds a path of the node's file system.
func (c *Cluster) nodePath(path string) (string, error) {
	processes, err := process.Find(c.Dir)
	if err != nil {
		return "", err
	}
	for _, p := range processes {
		if p.Component == supervisorName {
			return fmt.Sprintf("/proc/%d/root%s", p.PID, path), nil
		}
	}
	return "", ErrDown
}
