package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/process"
)

// pause before a component that exited is restarted.
const pause = 500 * time.Millisecond

// attempts is how often a component may exit before it was ever ready. More
// attempts would only hide that it cannot start.
const attempts = 3

// crashLines is how many lines of a panic are printed.
const crashLines = 12

const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Supervisor runs the components of one cluster.
type Supervisor struct {
	Cluster    string // the cluster's directory as seen from the host, which marks its processes
	Dir        string // the same directory as seen from here: the components' working directory
	Logs       string // the directory for the components' output
	Components []Component

	running map[int]*Component // by pid
	started map[string]bool
	ready   map[string]bool
	failed  map[string]int // how often each has ended before it was ready

	readied chan *Component
	restart chan *Component
}

// Run starts the components and returns when ctx ends, having killed them.
//
// One loop on one thread manages all processes: the kernel kills a child whose parent
// thread has exited, and a wait for any child must not race with a start.
func (s *Supervisor) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	s.running, s.started, s.ready = map[int]*Component{}, map[string]bool{}, map[string]bool{}
	s.failed = map[string]int{}
	s.readied, s.restart = make(chan *Component), make(chan *Component)
	children := make(chan os.Signal, 1) // one is enough: reap collects all children
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)

	if err := s.startReady(ctx); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			s.killAll()
			return nil
		case <-children:
			err = s.reap(ctx)
		case component := <-s.readied:
			s.ready[component.Name] = true
			log.Printf("%s is ready", component.Name)
		case component := <-s.restart:
			err = s.start(ctx, component)
		}
		if err == nil {
			err = s.startReady(ctx)
		}
		if err != nil {
			s.killAll()
			return err
		}
	}
}

// startReady starts the components whose dependencies are ready.
func (s *Supervisor) startReady(ctx context.Context) error {
	for i := range s.Components {
		component := &s.Components[i]
		if s.started[component.Name] || !s.metNeeds(component) {
			continue
		}
		if err := s.start(ctx, component); err != nil {
			return err
		}
	}
	return nil
}

func (s *Supervisor) metNeeds(component *Component) bool {
	for _, name := range component.After {
		if !s.ready[name] {
			return false
		}
	}
	return true
}

func (s *Supervisor) start(ctx context.Context, component *Component) error {
	output, err := os.OpenFile(filepath.Join(s.Logs, component.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer nothing.Close()

	pid, err := syscall.ForkExec(component.Command[0], component.Command, &syscall.ProcAttr{
		Dir:   s.Dir,
		Env:   s.environment(component),
		Files: []uintptr{nothing.Fd(), output.Fd(), output.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", component.Name, err)
	}
	log.Printf("%s has started with pid %d", component.Name, pid)
	first := !s.started[component.Name]
	s.running[pid], s.started[component.Name] = component, true
	if first && !component.Task {
		go s.awaitReady(ctx, component)
	}
	return nil
}

// environment lets components, which are all written in Go, collect garbage less often: a cluster on one machine has
// more memory to spare than processor time.
func (s *Supervisor) environment(component *Component) []string {
	path := strings.Join(append(slices.Clip(component.Path), usualPath), ":")
	return append(process.Mark(s.Cluster, component.Name), "PATH="+path, "HOME="+s.Dir, "GOGC=200")
}

// awaitReady reports to the loop, which owns all state.
func (s *Supervisor) awaitReady(ctx context.Context, component *Component) {
	if component.Ready != nil {
		if err := component.Ready(ctx); err != nil {
			log.Printf("waiting for %s: %v", component.Name, err)
			return
		}
	}
	send(ctx, s.readied, component)
}

// reap collects every child that has exited: components, and in a node the orphans
// that containers leave to pid 1.
func (s *Supervisor) reap(ctx context.Context) error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 { // ECHILD: there are no children at all
			return nil //nolint:nilerr // Nothing to reap is no failure.
		}
		component := s.running[pid]
		if component == nil {
			continue
		}
		delete(s.running, pid)
		if err := s.ended(ctx, component, status); err != nil {
			return err
		}
	}
}

// ended handles the exit of a component.
func (s *Supervisor) ended(ctx context.Context, component *Component, status syscall.WaitStatus) error {
	if component.Task && status.ExitStatus() == 0 {
		s.ready[component.Name] = true
		log.Printf("%s has finished", component.Name)
		return nil
	}
	if !s.ready[component.Name] {
		s.failed[component.Name]++
	}
	if s.failed[component.Name] == attempts {
		return fmt.Errorf("%s cannot start: it exited %d times, the last time with %s; see %s.log", component.Name, attempts, describe(status), component.Name)
	}
	log.Printf("%s exited with %s; restarting it%s", component.Name, describe(status), s.crash(component))
	time.AfterFunc(pause, func() { send(ctx, s.restart, component) })
	return nil
}

// crash returns the start of the last Go panic in the component's log, because a log of a hundred goroutines hides its cause.
func (s *Supervisor) crash(component *Component) string {
	output, _ := os.ReadFile(filepath.Join(s.Logs, component.Name+".log")) // without a log, the exit code has to do
	start := max(bytes.LastIndex(output, []byte("\npanic: ")), bytes.LastIndex(output, []byte("\nfatal error: ")))
	if start < 0 {
		return ""
	}
	lines := bytes.SplitAfterN(output[start:], []byte("\n"), crashLines+2)
	return string(bytes.TrimRight(bytes.Join(lines[:min(len(lines), crashLines+1)], nil), "\n"))
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}

func (s *Supervisor) killAll() {
	for pid := range s.running {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended already
	}
}

func send(ctx context.Context, to chan<- *Component, component *Component) {
	select {
	case to <- component:
	case <-ctx.Done():
	}
}
