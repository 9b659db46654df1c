package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// attackTimeout limits a connection of an attack.
	attackTimeout = 500 * time.Millisecond
	// childVariable is set in the second process.
	childVariable = "EGRESSPROBE_CHILD"
)

// attack tries all targets at the same time, again and again. It prints the TCP targets that it reaches, and the number
// of each round.
func attack(targets []string) error {
	signal.Ignore(syscall.SIGTERM)
	if os.Getenv(childVariable) == "" {
		child := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:gosec,noctx // it outlives everything but SIGKILL
		child.Env, child.Stderr = append(os.Environ(), childVariable+"=1"), os.Stderr
		if err := child.Start(); err != nil {
			return err
		}
	}
	for round := 1; ; round++ {
		start := time.Now()
		var attempts sync.WaitGroup
		for _, target := range targets {
			attempts.Go(func() {
				if try(target, attackTimeout) == nil && strings.HasPrefix(target, "tcp:") {
					fmt.Println("reached", target)
				}
			})
		}
		attempts.Wait()
		fmt.Println("round", round)
		time.Sleep(time.Until(start.Add(attackTimeout))) // refused connections end at once
	}
}
