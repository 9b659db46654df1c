package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"
)

// Options are what a worker starts with.
type Options struct {
	// Config, where ConfigFile does not say otherwise.
	Config Config
	// ConfigFile has a Config as YAML or JSON, which takes the place of Config's fields that
	// it has. It is read again when it changes.
	ConfigFile string
	// Pool, Namespace, Pod and Revision are whose worker this is, for who asks it.
	Pool, Namespace, Pod, Revision string
	// Logger is told what happens; slog's default if there is none.
	Logger *slog.Logger
}

// The environment of a worker.
const (
	envPool         = "YARDMASTER_POOL"
	envNamespace    = "YARDMASTER_NAMESPACE"
	envPod          = "YARDMASTER_POD"
	envRevision     = "YARDMASTER_REVISION"
	envQueues       = "YARDMASTER_QUEUES"
	envConcurrency  = "YARDMASTER_CONCURRENCY"
	envConfigFile   = "YARDMASTER_CONFIG_FILE"
	envDrainTimeout = "YARDMASTER_DRAIN_TIMEOUT"
)

// FromEnvironment are the options that a WorkerPool gives to its Pods. YARDMASTER_QUEUES
// are names with commas between, each perhaps with its weight: orders=3,mail.
func FromEnvironment() (Options, error) { return fromEnvironment(os.Getenv) }

func fromEnvironment(variable func(string) string) (Options, error) {
	o := Options{
		ConfigFile: variable(envConfigFile),
		Pool:       variable(envPool),
		Namespace:  variable(envNamespace),
		Pod:        variable(envPod),
		Revision:   variable(envRevision),
	}
	var errs []error
	for one := range strings.SplitSeq(variable(envQueues), ",") {
		name, weight, weighted := strings.Cut(strings.TrimSpace(one), "=")
		if name == "" {
			continue
		}
		q := Queue{Name: name}
		if weighted {
			var err error
			if q.Weight, err = strconv.Atoi(weight); err != nil || q.Weight < 1 {
				errs = append(errs, fmt.Errorf("%s: the weight of %s is %q, must be 1 to 100", envQueues, name, weight))
			}
		}
		o.Config.Queues = append(o.Config.Queues, q)
	}
	if text := variable(envConcurrency); text != "" {
		var err error
		if o.Config.Concurrency, err = strconv.Atoi(text); err != nil {
			errs = append(errs, fmt.Errorf("%s is %q, must be a number", envConcurrency, text))
		}
	}
	if text := variable(envDrainTimeout); text != "" {
		timeout, err := time.ParseDuration(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q, must be a duration such as 10m", envDrainTimeout, text))
		}
		o.Config.DrainTimeout = Duration(timeout)
	}
	return o, errors.Join(errs...)
}

// read is the Config as it is now: that of the file over that of the options.
func (o *Options) read() (*settings, error) {
	config := o.Config
	if o.ConfigFile != "" {
		raw, err := os.ReadFile(o.ConfigFile)
		if err != nil {
			return nil, err
		}
		file, err := ParseConfig(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.ConfigFile, err)
		}
		config = file.over(config)
	}
	s, err := config.settings()
	if err != nil && o.ConfigFile != "" {
		return nil, fmt.Errorf("%s: %w", o.ConfigFile, err)
	}
	return s, err
}

// over is the Config where it says something, and else the one below.
func (c *Config) over(below Config) Config {
	all := Config{
		Broker:       or(c.Broker, below.Broker),
		Queues:       c.Queues,
		Concurrency:  or(c.Concurrency, below.Concurrency),
		DrainTimeout: or(c.DrainTimeout, below.DrainTimeout),
		AdminAddress: or(c.AdminAddress, below.AdminAddress),
	}
	if len(all.Queues) == 0 {
		all.Queues = below.Queues
	}
	return all
}
