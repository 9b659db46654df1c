package workercommand

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/worker"
)

// defaultForwardTimeout is how long the server has to respond to a job.
const defaultForwardTimeout = 10 * time.Minute

// Run runs `yardmaster worker` with the given arguments until ctx ends or the process receives SIGTERM or SIGINT. It returns after
// the worker has drained.
func Run(ctx context.Context, args []string, out, errOut io.Writer) error {
	c, err := parseArguments(args, errOut)
	if err != nil {
		return err
	}
	c.options.Logger = slog.New(slog.NewJSONHandler(errOut, &slog.HandlerOptions{Level: c.logLevel}))
	defer startTracing(ctx, os.Getenv, &c.options)()
	if c.forwardURL != nil {
		f := newForwarder(c.forwardURL, c.forwardTimeout)
		c.options.Available = f.available
		return worker.Run(ctx, c.options, f.handle)
	}
	runner := &commandRunner{command: c.execCommand, timeout: c.execTimeout, out: out, errOut: errOut}
	return worker.Run(ctx, c.options, runner.handle)
}

type commandOptions struct {
	options  worker.Options
	logLevel slog.Level

	// forwardURL is nil if jobs are run by execCommand.
	forwardURL     *url.URL
	forwardTimeout time.Duration
	execCommand    []string
	execTimeout    time.Duration
}

// parseArguments parses the flags. Their defaults come from the environment.
func parseArguments(args []string, output io.Writer) (*commandOptions, error) {
	c := &commandOptions{}
	var err error
	if c.options, err = worker.FromEnvironment(); err != nil {
		return nil, err
	}
	var (
		forwardURL, queues string
		isExec             bool
		drainTimeout       time.Duration
		config             = &c.options.Config
	)
	f := flag.NewFlagSet("yardmaster worker", flag.ContinueOnError)
	f.SetOutput(output)
	f.StringVar(&forwardURL, "forward", "", "URL to which each job is sent as a POST request.")
	f.DurationVar(&c.forwardTimeout, "forward-timeout", defaultForwardTimeout, "Time limit for a response to a forwarded job, unless the job has a timeout.")
	f.BoolVar(&isExec, "exec", false, "Run the command after -- for each job, with the payload on standard input.")
	f.DurationVar(&c.execTimeout, "exec-timeout", 0, "Time limit for the command. 0 means no limit.")
	f.StringVar(&c.options.ConfigFile, "config-file", c.options.ConfigFile, "Configuration file, YAML or JSON. It is reloaded when it changes.")
	f.StringVar(&config.Broker.URL, "broker-url", "", "URL of the broker, unless the configuration file sets it.")
	f.StringVar(&queues, "queues", "", "Comma-separated names of the queues, unless the configuration file sets them.")
	f.IntVar(&config.Concurrency, "concurrency", config.Concurrency, "Number of jobs that run at a time, unless the configuration file sets it. 0 means 10.")
	f.DurationVar(&drainTimeout, "drain-timeout", time.Duration(config.DrainTimeout),
		"Time that running jobs have to finish before the worker exits, unless the configuration file sets it. 0 means 10m.")
	f.StringVar(&config.AdminAddress, "admin-address", "",
		"Address of /livez, /readyz, /drain, /resume, /prestop, /stats and /metrics. 0 disables them. Empty means :8081.")
	f.StringVar(&config.MetricsAddress, "metrics-address", config.MetricsAddress,
		"Address of /metrics. 0 disables them. Empty means that they are a part of the admin API.")
	f.TextVar(&c.logLevel, "log-level", slog.LevelInfo, "Lowest level of logged messages: debug, info, warn or error.")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	config.DrainTimeout = worker.Duration(drainTimeout)
	if queues != "" {
		config.Queues = nil // those of the environment
	}
	for name := range strings.SplitSeq(queues, ",") {
		if name = strings.TrimSpace(name); name != "" {
			config.Queues = append(config.Queues, worker.QueueConfig{Name: name})
		}
	}
	return c, c.setTarget(forwardURL, isExec, f.Args())
}

// setTarget validates and sets how jobs are run.
func (c *commandOptions) setTarget(forwardURL string, isExec bool, args []string) error {
	switch {
	case (forwardURL == "") == !isExec:
		return errors.New("exactly one of --forward and --exec is required")
	case isExec:
		return c.setCommand(args)
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case c.forwardTimeout <= 0:
		return fmt.Errorf("--forward-timeout is %s, must be more than 0", c.forwardTimeout)
	}
	target, err := url.Parse(forwardURL)
	if err != nil || !slices.Contains([]string{"http", "https"}, target.Scheme) || target.Host == "" {
		return fmt.Errorf("--forward is %q, must be a URL such as http://127.0.0.1:8080/jobs", forwardURL)
	}
	c.forwardURL = target
	return nil
}

func (c *commandOptions) setCommand(args []string) error {
	if len(args) == 0 {
		return errors.New("--exec requires a command after --")
	}
	if c.execTimeout < 0 {
		return fmt.Errorf("--exec-timeout is %s, must not be negative", c.execTimeout)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("--exec: %w", err)
	}
	c.execCommand = append([]string{path}, args[1:]...)
	return nil
}
