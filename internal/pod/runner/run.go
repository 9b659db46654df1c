package runner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
	"github.com/yardmaster/yardmaster/internal/pod/modelproxy"
	"github.com/yardmaster/yardmaster/internal/pod/podclient"
	"github.com/yardmaster/yardmaster/internal/pod/sessiongit"
)

const (
	// memoryLimit makes the garbage collector work more instead of using more memory.
	memoryLimit = 16 << 20
	// A Pod has 10 seconds to end: half of them for the agent, and most of the rest for its commits.
	defaultGracePeriod     = 5 * time.Second
	defaultPushGracePeriod = 4 * time.Second
	// defaultPushTimeout bounds a push before SIGTERM: servers scan pushed commits, and may be away for a while.
	defaultPushTimeout = 5 * time.Minute
	// defaultExitDelay is longer than an agent needs to store its conversation.
	defaultExitDelay = 10 * time.Second
	maxProfileBytes  = 1 << 20
)

type options struct {
	profile        string
	profileFile    string
	permissionMode string
	systemPrompt   string
	gracePeriod    time.Duration
	// pushGracePeriod follows gracePeriod. pushTimeout bounds a push that no SIGTERM shortens.
	pushGracePeriod time.Duration
	pushTimeout     time.Duration
	exitDelay       time.Duration
	arguments       []string
}

// Run runs a session and returns the exit code. Once the inputs are read, it writes a result for every outcome.
func Run(ctx context.Context, args []string, getenv func(string) string, out, errOut io.Writer) (int, error) {
	debug.SetMemoryLimit(memoryLimit)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	o, err := parseOptions(args, errOut)
	if err != nil {
		return exitInvalid, err
	}
	in, err := readInputs(getenv)
	if err != nil {
		return exitInvalid, fmt.Errorf("reading the session's inputs: %w", err)
	}
	if err := guardProcess(); err != nil {
		return exitFailure, err
	}
	events := &emitter{out: out, redact: newRedactor(os.Environ()), now: time.Now}
	transcript := openTranscript(ctx, getenv, events)
	code, s, err := o.runSession(ctx, in, events, transcript, getenv)
	end := agentprofile.Event{Type: agentprofile.EventRunner, Text: fmt.Sprintf("The session ended with code %d", code)}
	if err != nil {
		end.Type, end.Text, end.Failed = agentprofile.EventError, err.Error(), true
	}
	events.emit(end)
	final := &result{}
	switch {
	case s != nil:
		final = s.result(err)
	case err != nil:
		final.Summary = events.redact.string(err.Error())
	}
	if err := writeResult(in.resultFile, final.encode(in.maxResultBytes)); err != nil || transcript == nil {
		return code, err
	}
	// Only after the result, because a terminated runner may have no time left.
	stored := transcript.close(ctx, events)
	final.Transcript = &stored
	for i := range final.Repositories {
		final.Repositories[i].locate(&stored)
	}
	return code, writeResult(in.resultFile, final.encode(in.maxResultBytes))
}

// runSession runs the session. It returns a nil session if the session could not start.
func (o *options) runSession(
	ctx context.Context, in *inputs, events *emitter, transcript *transcript, getenv func(string) string,
) (int, *session, error) {
	profile, err := o.loadProfile()
	if err != nil {
		return exitInvalid, nil, err
	}
	s := &session{inputs: in, profile: profile, options: o, events: events, environment: agentEnvironment(os.Environ())}
	if o.systemPrompt != "" {
		raw, err := readBounded(o.systemPrompt, maxProfileBytes)
		if err != nil {
			return exitInvalid, nil, fmt.Errorf("--system-prompt-file: %w", err)
		}
		s.systemPrompt = string(raw)
	}
	if directory := getenv("AGENTIC_MODEL"); directory != "" { // the SessionRunner has a proxy for the model
		variables, err := modelproxy.Environment(ctx, directory, getenv("AGENTIC_MODEL_PROVIDER"))
		if err != nil {
			return exitFailure, nil, err
		}
		s.environment, s.modelURL = append(s.environment, variables...), modelproxy.URL
	}
	if s.lease, err = newLease(getenv, in.job, podclient.TokenDirectory, events.report); err != nil {
		return exitInvalid, nil, fmt.Errorf("preparing to renew the Lease: %w", err)
	}
	if s.state, err = readState(in.workspace); err != nil {
		events.report("Reading the state of earlier attempts, which are not resumed: %s", err)
	}
	if directory := getenv("AGENTIC_GIT"); directory != "" { // the SessionRunner has a container that clones
		s.repositories = &repositories{inputs: in, client: sessiongit.NewClient(directory), timeout: o.pushTimeout, logf: events.report, archive: transcript.storeFile}
	}
	s.lease.start(ctx)
	leaseContext, stopLease := context.WithCancel(context.WithoutCancel(ctx))
	var renewals sync.WaitGroup
	renewals.Go(func() { s.lease.run(leaseContext) })
	code, err := s.execute(ctx)
	stopLease()
	renewals.Wait()
	s.lease.renew(context.WithoutCancel(ctx)) // the last cost: the operator may not read the result of a stopped session
	return code, s, err
}

// agentEnvironment returns the environment of the agent, without the variables with which a runner reports.
func agentEnvironment(environment []string) []string {
	var own []string
	for _, variable := range environment {
		if !strings.HasPrefix(variable, "AGENTIC_LEASE=") && !strings.HasPrefix(variable, "AGENTIC_RESULT_") {
			own = append(own, variable)
		}
	}
	return own
}

func (o *options) loadProfile() (*agentprofile.Profile, error) {
	if o.profileFile == "" {
		return agentprofile.Load(o.profile)
	}
	raw, err := readBounded(o.profileFile, maxProfileBytes)
	if err != nil {
		return nil, fmt.Errorf("--profile-file: %w", err)
	}
	profile, err := agentprofile.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("--profile-file %s: %w", o.profileFile, err)
	}
	return profile, nil
}

func parseOptions(args []string, output io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("session-runner", flag.ContinueOnError)
	f.SetOutput(output)
	f.StringVar(&o.profile, "profile", "", "Name of a built-in profile: "+strings.Join(agentprofile.BuiltIn(), ", ")+".")
	f.StringVar(&o.profileFile, "profile-file", "", "File with a profile, YAML or JSON.")
	f.StringVar(&o.permissionMode, "permission-mode", "full", "What the agent may do without asking: full, edit (only edit files) or read.")
	f.StringVar(&o.systemPrompt, "system-prompt-file", "", "File with a text to add to the agent's system prompt.")
	f.DurationVar(&o.gracePeriod, "grace-period", defaultGracePeriod, "Time that the agent has to end after SIGTERM.")
	f.DurationVar(&o.pushGracePeriod, "push-grace-period", defaultPushGracePeriod, "Time that pushing has after SIGTERM and --grace-period; what the agent does not need of that is added.")
	f.DurationVar(&o.pushTimeout, "push-timeout", defaultPushTimeout, "Time that pushing a repository has without SIGTERM.")
	f.DurationVar(&o.exitDelay, "exit-delay", defaultExitDelay,
		"Time without output after its result in which the agent has to exit. Then it is ended, and the session has its result.")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.arguments = f.Args()
	switch {
	case (o.profile == "") == (o.profileFile == ""):
		return nil, errors.New("exactly one of --profile and --profile-file is required")
	case o.gracePeriod <= 0:
		return nil, fmt.Errorf("--grace-period is %s, must be more than 0", o.gracePeriod)
	case o.exitDelay <= 0:
		return nil, fmt.Errorf("--exit-delay is %s, must be more than 0", o.exitDelay)
	case o.pushTimeout <= 0:
		return nil, fmt.Errorf("--push-timeout is %s, must be more than 0", o.pushTimeout)
	case o.pushGracePeriod <= 0:
		return nil, fmt.Errorf("--push-grace-period is %s, must be more than 0", o.pushGracePeriod)
	}
	return o, nil
}
