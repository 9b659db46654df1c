package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/yardmaster/yardmaster/localcluster/internal/cgroup"
	"github.com/yardmaster/yardmaster/localcluster/internal/component"
	"github.com/yardmaster/yardmaster/localcluster/internal/forward"
	"github.com/yardmaster/yardmaster/localcluster/internal/sandbox"
	"github.com/yardmaster/yardmaster/localcluster/internal/supervisor"
)

// listenerFD is where a node's supervisor finds the listener for the API server,
// which was made outside its network namespace.
const listenerFD = 3

// Supervise runs the processes of the cluster until it is killed. It is what
// the process that Up starts does.
func (c *Cluster) Supervise() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	r, err := c.read()
	if err != nil {
		return err
	}
	if r == nil {
		return ErrDown
	}
	s := supervisor.Supervisor{Cluster: c.Dir}
	if r.Mode == Node {
		s.Components, err = c.enterNode(r)
		s.Dir = component.NodeRoot
	} else {
		s.Components, err = c.controlPlaneComponents(r)
		s.Dir = c.Dir
	}
	if err != nil {
		return err
	}
	s.Logs = component.Layout{Root: s.Dir}.Logs()
	return s.Run(ctx)
}

// enterNode turns this process, pid 1 of new namespaces, into a node.
func (c *Cluster) enterNode(r *record) ([]supervisor.Component, error) {
	if os.Getpid() != 1 {
		return nil, fmt.Errorf("a node's supervisor must be pid 1 of its own namespaces, and this is pid %d", os.Getpid())
	}
	if err := cgroup.Create(c.cgroup()); err != nil {
		return nil, fmt.Errorf("creating the node's control group: %w", err)
	}
	snapshotter, err := snapshotter(c.Dir)
	if err != nil {
		return nil, err
	}
	listener, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		return nil, fmt.Errorf("taking over the listener: %w", err)
	}
	machine := sandbox.Sandbox{
		Hostname: component.NodeName,
		Address:  component.NodeSubnet,
		Services: component.ServiceSubnet,
		Visible: map[string]string{
			component.NodeRoot:     c.Dir,
			component.NodePrograms: Programs(c.home),
			"/var/lib/kubelet":     filepath.Join(c.Dir, "kubelet"),
			"/var/log/pods":        filepath.Join(c.Dir, "pods"),
		},
	}
	if err := machine.Enter(); err != nil {
		return nil, err
	}
	go func() { _ = forward.Serve(listener, component.NodeAPIServer) }() // it ends with the process
	return c.nodeComponents(r, snapshotter)
}

// snapshotter is how containerd keeps file systems: overlayfs cannot lie on
// another overlayfs, as in most containers.
func snapshotter(dir string) (string, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return "", err
	}
	if stat.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "native", nil
	}
	return "overlayfs", nil
}
