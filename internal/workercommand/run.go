package workercommand

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/worker"
)

// Run runs `yardmaster worker` with those arguments, until ctx ends or the process is
// told to end.
func Run(ctx context.Context, args []string, out, errOut io.Writer) error {
	c, err := parse(args, errOut)
	if err != nil {
		return err
	}
	c.options.Logger = slog.New(slog.NewJSONHandler(errOut, &slog.HandlerOptions{Level: c.level}))
	return worker.Run(ctx, c.options, c.handler(out, errOut))
}

// command is what the flags say.
type command struct {
	options worker.Options
	level   slog.Level

	forward        *url.URL
	forwardTimeout time.Duration
	exec           []string
	execTimeout    time.Duration
}

func (c *command) handler(out, errOut io.Writer) worker.Handler {
	if c.forward != nil {
		return newForwarder(c.forward, c.forwardTimeout).handle
	}
	return (&executor{command: c.exec, timeout: c.execTimeout, out: out, errOut: errOut}).handle
}

// parse reads flags, over what the environment says.
func parse(args []string, output io.Writer) (*command, error) {
	c := &command{}
	var err error
	if c.options, err = worker.FromEnvironment(); err != nil {
		return nil, err
	}
	var (
		forward, queues string
		isExec          bool
		drainTimeout    time.Duration
		config          = &c.options.Config
	)
	f := flag.NewFlagSet("yardmaster worker", flag.ContinueOnError)
	f.SetOutput(output)
	f.StringVar(&forward, "forward", "", "URL that each job is sent to by POST.")
	f.DurationVar(&c.forwardTimeout, "forward-timeout", 10*time.Minute, "How long an answer may take.")
	f.BoolVar(&isExec, "exec", false, "Run the command after -- for each job, which it finds on its standard input.")
	f.DurationVar(&c.execTimeout, "exec-timeout", 0, "How long the command may take. 0: as long as it wants.")
	f.StringVar(&c.options.ConfigFile, "config-file", c.options.ConfigFile, "File with the configuration; read again when it changes.")
	f.StringVar(&config.Broker.URL, "broker-url", "", "URL of the broker, where the file has none.")
	f.StringVar(&queues, "queues", "", "Names of queues, with commas between, where the file has none.")
	f.IntVar(&config.Concurrency, "concurrency", config.Concurrency, "How many jobs run at a time, where the file does not say. 0: 10.")
	f.DurationVar(&drainTimeout, "drain-timeout", time.Duration(config.DrainTimeout), "How long jobs may take to finish once it is to end, where the file does not say. 0: 10m.")
	f.StringVar(&config.AdminAddress, "admin-address", "", "Address of /livez, /readyz, /drain, /resume, /prestop, /stats and /metrics. 0: not served. Empty: :8081.")
	f.TextVar(&c.level, "log-level", slog.LevelInfo, "What is logged: debug, info, warn or error.")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	config.DrainTimeout = worker.Duration(drainTimeout)
	for name := range strings.SplitSeq(queues, ",") {
		if name = strings.TrimSpace(name); name != "" {
			config.Queues = append(config.Queues, worker.Queue{Name: name})
		}
	}
	return c, c.target(forward, isExec, f.Args())
}

// target reads where jobs go.
func (c *command) target(forward string, isExec bool, args []string) error {
	switch {
	case (forward == "") == !isExec:
		return errors.New("one of --forward and --exec must be given")
	case isExec:
		if len(args) == 0 {
			return errors.New("--exec needs a command, after --")
		}
		if c.execTimeout < 0 {
			return fmt.Errorf("--exec-timeout is %s, must not be negative", c.execTimeout)
		}
		path, err := exec.LookPath(args[0])
		if err != nil {
			return fmt.Errorf("--exec: %w", err)
		}
		c.exec = append([]string{path}, args[1:]...)
		return nil
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case c.forwardTimeout <= 0:
		return fmt.Errorf("--forward-timeout is %s, must be more than 0", c.forwardTimeout)
	}
	target, err := url.Parse(forward)
	if err != nil || !slices.Contains([]string{"http", "https"}, target.Scheme) || target.Host == "" {
		return fmt.Errorf("--forward is %q, must be a URL such as http://127.0.0.1:8080/jobs", forward)
	}
	c.forward = target
	return nil
}
