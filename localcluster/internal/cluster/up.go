package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/build"
	"github.com/yardmaster/yardmaster/localcluster/internal/component"
	"github.com/yardmaster/yardmaster/localcluster/internal/kubeapi"
	"github.com/yardmaster/yardmaster/localcluster/internal/process"
	"github.com/yardmaster/yardmaster/localcluster/internal/sandbox"
)

// startTimeout is many times what a start takes on a slow machine.
const startTimeout = 3 * time.Minute

// supervisorName marks the process that runs the cluster's components.
const supervisorName = "supervisor"

// Start starts a cluster from built programs, and returns when it is ready for use.
// It first deletes what remains of an earlier cluster.
func (c *Cluster) Start(ctx context.Context, options Options, programs build.Programs) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	// Another up may have held the lock.
	if status, err := c.Status(ctx); err == nil && status != nil && status.Up && status.Mode == options.Mode {
		return nil
	}
	if err := c.remove(); err != nil {
		return fmt.Errorf("deleting what remains of an earlier cluster: %w", err)
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: options.Port})
	if err != nil {
		return fmt.Errorf("reserving a port for the API server: %w", err)
	}
	defer listener.Close()
	options.Port = portOf(listener)

	r := &record{Options: options, Created: time.Now(), Programs: programs}
	if err := c.prepare(r); err != nil {
		return err
	}
	if err := c.startSupervisor(r, listener); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.waitReady(ctx, r); err != nil {
		return c.failed(err)
	}
	return nil
}

func portOf(listener *net.TCPListener) int {
	address, isTCP := listener.Addr().(*net.TCPAddr)
	if !isTCP { // it always is
		return 0
	}
	return address.Port
}

// prepare writes all files that the supervisor reads.
func (c *Cluster) prepare(r *record) error {
	l := c.layout()
	for _, dir := range []string{l.Logs(), l.Volumes(), l.File("cni"), l.File("kubelet"), l.File("pods"), l.File("etcd")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	inside := r.server()
	if r.Mode == Node {
		inside = "https://" + component.NodeAPIServer
	}
	if err := component.Certificates(l, inside, r.server()); err != nil {
		return fmt.Errorf("creating certificates: %w", err)
	}
	if r.Mode == Node {
		if err := c.prepareNode(r); err != nil {
			return err
		}
	} else if err := writeFile(l.File("simulation.yaml"), component.Simulation); err != nil {
		return err
	}
	return component.WriteJSON(c.recordPath(), r)
}

func (c *Cluster) prepareNode(r *record) error {
	l := c.layout()
	if err := writeDefaultImages(l, r.Programs); err != nil {
		return err
	}
	inside := component.Layout{Root: component.NodeRoot}
	if err := writeFile(l.File("Corefile"), component.Corefile(inside)); err != nil {
		return err
	}
	return component.WriteJSON(l.File("cni", "10-pods.conflist"), component.Network())
}

// startSupervisor starts this program again, in a session of its own so that it
// outlives the terminal, and for a node as pid 1 of new namespaces.
func (c *Cluster) startSupervisor(r *record, listener *net.TCPListener) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	output, err := os.OpenFile(c.supervisorLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	command := exec.Command(executable, "supervise", "--name", c.Name)
	command.Dir = "/"
	command.Env = append(os.Environ(), process.Mark(c.Dir, supervisorName)...)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if r.Mode == Node {
		file, err := listener.File()
		if err != nil {
			return err
		}
		defer file.Close()
		command.ExtraFiles = []*os.File{file} // becomes listenerFD
		command.SysProcAttr.Cloneflags = sandbox.Namespaces
	} else if err := listener.Close(); err != nil { // the API server itself is to listen there
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	// Wait for it, so that its exit during the start is noticed.
	go func() { _ = command.Wait() }()
	return nil
}

func (c *Cluster) supervisorLog() string { return filepath.Join(c.layout().Logs(), "supervisor.log") }

func (c *Cluster) waitReady(ctx context.Context, r *record) error {
	api, err := c.api(r)
	if err != nil {
		return err
	}
	if err := c.await(ctx, "the API server", func() (bool, error) { err := api.Ready(ctx); return err == nil, err }); err != nil {
		return err
	}
	objects := []component.Object{component.StorageClass()}
	nodes := 1
	if r.Mode == ControlPlane {
		nodes = r.Nodes
		for i := range nodes {
			objects = append(objects, component.SimulatedNode(i+1))
		}
	}
	for _, object := range objects {
		create := func() (bool, error) { err := api.Create(ctx, object.Path, object.Body); return err == nil, err }
		if err := c.await(ctx, "the creation of "+object.Path, create); err != nil {
			return err
		}
	}
	if err := c.await(ctx, "the nodes", func() (bool, error) { return readyNodes(ctx, api, nodes) }); err != nil {
		return err
	}
	const account = "/api/v1/namespaces/default/serviceaccounts/default"
	return c.await(ctx, "the default service account", func() (bool, error) { return api.Exists(ctx, account) })
}

func readyNodes(ctx context.Context, api *kubeapi.Client, want int) (bool, error) {
	nodes, err := api.Nodes(ctx)
	if err != nil {
		return false, err
	}
	ready := 0
	for _, node := range nodes {
		if node.Ready {
			ready++
		}
	}
	return ready >= want, nil
}

// await waits until done returns true, or until the cluster's supervisor exits. Errors of done do not end the wait, because
// the supervisor restarts a component that ends.
func (c *Cluster) await(ctx context.Context, what string, done func() (bool, error)) error {
	var last error
	err := kubeapi.Wait(ctx, func() (bool, error) {
		ok, err := done()
		if ok && err == nil {
			return true, nil
		}
		last = err
		alive, err := c.alive()
		if err == nil && !alive {
			err = errors.New("the supervisor exited")
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, errors.Join(err, last))
	}
	return nil
}

// alive reports whether the supervisor runs.
func (c *Cluster) alive() (bool, error) {
	processes, err := process.Find(c.Dir)
	if err != nil {
		return false, err
	}
	for _, p := range processes {
		if p.Component == supervisorName {
			return true, nil
		}
	}
	return false, nil
}

// failed ends the processes of a cluster that did not start, and keeps its logs.
func (c *Cluster) failed(cause error) error {
	log, err := os.ReadFile(c.supervisorLog())
	if err != nil {
		return errors.Join(cause, err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	last := strings.Join(lines[max(0, len(lines)-15):], "\n")
	cause = fmt.Errorf("%w\n%s\nall logs are in %s", cause, last, c.layout().Logs())
	return errors.Join(cause, process.KillAll(c.Dir))
}

func writeFile(path, content string) error {
	return os.WriteFile(path, []byte(content), 0o600)
}
