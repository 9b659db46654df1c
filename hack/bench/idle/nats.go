package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsServer, as the first argument, makes this program the broker.
const natsServer = "nats-server"

// runNATS serves from a directory until it is interrupted, and prints its URL.
func runNATS(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s DIRECTORY", natsServer)
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: args[0], NoLog: true, NoSigs: true,
	})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return errors.New("the NATS server does not start")
	}
	if _, err := fmt.Fprintln(os.Stdout, s.ClientURL()); err != nil {
		return err
	}
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return os.RemoveAll(args[0])
}

// startNATS starts this program again as the broker, and waits for its URL.
func startNATS(ctx context.Context) (process *exec.Cmd, url string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	store, err := os.MkdirTemp("", "bench-nats-")
	if err != nil {
		return nil, "", err
	}
	process = exec.CommandContext(ctx, self, natsServer, store)
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) } // it removes its files
	process.Stderr = os.Stderr
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := process.Start(); err != nil {
		return nil, "", err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		endProcess(process)
		return nil, "", fmt.Errorf("waiting for the NATS server: %w", err)
	}
	return process, strings.TrimSpace(line), nil
}

// endProcess asks a process to end, and waits until it has.
func endProcess(process *exec.Cmd) {
	_ = process.Process.Signal(os.Interrupt) // it may have ended
	_ = process.Wait()                       // how it ended says nothing about what was measured
}
