package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stopDelay is how long processes that an agent left behind have to end after SIGTERM, and how long they may need after SIGKILL.
	stopDelay = 5 * time.Second
	// stopInterval is how often the runner looks for remaining processes.
	stopInterval = 20 * time.Millisecond
)

// process is a process of this machine, or an earlier one with its ID.
type process struct {
	id      int
	started string
}

// descendant is a process below this one.
type descendant struct {
	process

	parent int // this process also becomes the parent of those whose parents end
	ended  bool
}

// guardProcess makes this process the parent of all processes below it whose parents end, so that the runner finds them whatever
// process group or session they are in. It also closes this process to others of its user, such as the agent: they cannot read its
// environment and memory, or take over its connections.
func guardProcess() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("closing the runner's process to the agent: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the parent of the processes that an agent leaves behind: %w", err)
	}
	return nil
}

// processesBelow returns the processes below this one that have not ended, except the known ones, parents before their children. With
// reap, it also reaps those that have ended; no other part of this process may then wait for one.
func processesBelow(known []descendant, reap bool) []descendant {
	self, children := os.Getpid(), map[int][]descendant{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// A name can contain spaces and parentheses. The parent and the start follow it.
		const state, parent, started = 0, 1, 19
		fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		if len(fields) <= started {
			continue
		}
		e := descendant{ended: fields[state] == "Z"}
		e.id, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
		e.parent, _ = strconv.Atoi(fields[parent])
		e.started = fields[started]
		children[e.parent] = append(children[e.parent], e)
	}
	isKnown := func(p process) bool {
		return slices.ContainsFunc(known, func(k descendant) bool { return k.process == p })
	}
	var below []descendant
	for next := children[self]; len(next) > 0; {
		e := next[0]
		next = append(next[1:], children[e.id]...)
		switch {
		case isKnown(e.process):
		case !e.ended:
			below = append(below, e)
		case reap && e.parent == self:
			_, _ = unix.Wait4(e.id, nil, unix.WNOHANG, nil)
		}
	}
	return below
}

// endProcesses ends all processes below this one, except the known ones: it sends SIGTERM, and SIGKILL after a delay. It reports how
// many remain.
func endProcesses(known []descendant, delay time.Duration, reap bool) int {
	ticker := time.NewTicker(stopInterval)
	defer ticker.Stop()
	kill, giveUp := time.Now().Add(delay), time.Now().Add(delay+stopDelay)
	// A process that starts after the first round belongs to the end of its parent, such as a command that saves its work. It gets SIGTERM
	// only when its parent has ended: nothing waits for it then. Parents come first: an agent that waits for a child would see the child
	// end, and exit as if its work were done, before its own SIGTERM.
	signaled := map[process]bool{}
	for isFirst := true; ; isFirst = false {
		remaining := processesBelow(known, reap)
		if len(remaining) == 0 || time.Now().After(giveUp) {
			return len(remaining)
		}
		for _, p := range remaining {
			switch {
			case time.Now().After(kill):
				_ = unix.Kill(p.id, unix.SIGKILL)
			case !signaled[p.process] && (isFirst || p.parent == os.Getpid()):
				signaled[p.process] = true
				_ = unix.Kill(p.id, unix.SIGTERM)
			}
		}
		<-ticker.C
	}
}
