package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
)

// The exit codes of the runner, besides those of the agent.
const (
	exitSuccess = 0
	exitFailure = 1
	exitInvalid = 2
	// exitTerminated is the code that a shell reports for a program that SIGTERM ended. A terminated runner must not exit with 0,
	// because its work is incomplete.
	exitTerminated = 128 + int(syscall.SIGTERM)
	// maxAgentCode is the highest code that does not look like a signal's code.
	maxAgentCode = 127
	// shellSignalCode is what shells add to the number of the signal that ended a program.
	shellSignalCode = 128
)

// session is one attempt of a session.
type session struct {
	inputs       *inputs
	profile      *agentprofile.Profile
	options      *options
	lease        *lease
	events       *emitter
	state        *state
	environment  []string
	systemPrompt string
	// modelURL of the proxy for the model; empty if the agent calls its model itself.
	modelURL string
	// repositories is nil if the SessionRunner has no container that clones; the image then provides them.
	repositories *repositories
	pushed       []repositoryResult

	mutex sync.Mutex
	tally *agentprofile.Tally
	// earlier are the reports of ended processes of this attempt: an interactive session has several.
	earlier     []agentprofile.Report
	recordedFor string
	words       lastWords
}

// execute runs the agent with the session's prompt, and returns the exit code of the runner.
func (s *session) execute(ctx context.Context) (int, error) {
	if err := os.MkdirAll(s.stateDirectory(), directoryMode); err != nil {
		return exitFailure, fmt.Errorf("creating the directory for the agent's state: %w", err)
	}
	if s.repositories != nil {
		start := s.events.now()
		switch err := s.repositories.prepare(ctx); {
		case err != nil && ctx.Err() != nil:
			return exitTerminated, nil
		case err != nil:
			return exitFailure, err
		}
		s.events.report("The repositories were prepared in %s", s.events.now().Sub(start).Round(time.Millisecond))
		// The runner's context ends with SIGTERM. Pushing may take longer, for the rest of the time that the Pod has to end.
		pushing, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(s.options.gracePeriod+s.options.pushGracePeriod, cancel) })()
		defer func() { s.pushed = s.repositories.push(pushing, s.result(nil).Summary) }()
	}
	if s.inputs.port == "" {
		prompt, err := s.firstPrompt()
		if err != nil {
			return exitInvalid, err
		}
		return s.runAgent(ctx, prompt)
	}
	return s.serve(ctx)
}

// firstPrompt returns the session's prompt, or a request to continue if the agent resumes its own interrupted conversation.
func (s *session) firstPrompt() (string, error) {
	prompt := s.inputs.prompt
	if workflow := s.inputs.file.Agent.Workflow; prompt == "" && workflow != nil {
		prompt = "Follow the instructions in " + filepath.Join(s.inputs.workspace, stateDirectory, "workflow", workflow.Path) + "."
	}
	if prompt == "" {
		return "", errors.New("the session has no prompt")
	}
	last := s.state.Sessions[s.inputs.name]
	if s.resumable() == last.Conversation && last.Conversation != "" && last.Run == s.inputs.run && !last.Finished {
		return "The work was interrupted. Check which parts are complete, and finish the task. This is the task:\n\n" + prompt, nil
	}
	return prompt, nil
}

// stateDirectory has the agent's state, in the workspace, so that later attempts can resume its conversation.
func (s *session) stateDirectory() string {
	return filepath.Join(s.inputs.workspace, stateDirectory, s.profile.Name)
}

// resumable returns the conversation to resume: the session's own latest conversation in this workspace, or the conversation of the
// session that it continues. It is empty without the agent's state, as in an ephemeral workspace.
func (s *session) resumable() string {
	last, found := s.state.Sessions[s.inputs.name]
	if found {
		if s.isResumable(&last) {
			return last.Conversation
		}
		return ""
	}
	for _, other := range s.state.Sessions {
		if s.inputs.sdkSessionID != "" && other.Conversation == s.inputs.sdkSessionID && s.isResumable(&other) {
			return other.Conversation
		}
	}
	return ""
}

func (s *session) isResumable(last *sessionState) bool {
	return last.Profile == s.profile.Name && last.Directory == s.inputs.workingDirectory()
}

func (s *session) runAgent(ctx context.Context, prompt string) (int, error) {
	conversation := s.resumable()
	if conversation == "" && s.inputs.sdkSessionID != "" && len(s.earlier) == 0 {
		s.events.report("The conversation %s is not in the workspace; starting a new one", s.inputs.sdkSessionID)
	}
	llm := &s.inputs.file.Agent
	command, err := s.profile.NewCommand(&agentprofile.Inputs{
		Prompt: prompt, SystemPrompt: s.systemPrompt, Model: llm.Model, MaxTokens: llm.MaxTokens.String(),
		ModelURL: s.modelURL, Conversation: conversation, State: s.stateDirectory(), Config: filepath.Join(s.inputs.home, stateDirectory),
		WorkingDirectory: s.inputs.workingDirectory(), PermissionMode: s.options.permissionMode,
		Servers: s.inputs.file.Agent.MCPServers.Custom, Disabled: s.inputs.file.Agent.MCPServers.Disabled, Arguments: s.options.arguments,
	})
	if err != nil {
		return exitInvalid, err
	}
	for _, setting := range command.Unused {
		s.events.report("%s has no effect with the profile %s", setting, s.profile.Name)
	}
	s.mutex.Lock()
	s.tally, s.words = s.profile.NewTally(llm.Model, conversation != "", s.state.baseline), lastWords{}
	s.mutex.Unlock()
	process := &agent{
		command: command, directory: s.inputs.workingDirectory(), grace: s.options.gracePeriod, exitDelay: s.options.exitDelay, events: s.events,
		observe: s.observe, parser: s.profile.NewParser(),
	}
	end, err := process.run(ctx, s.environment)
	if err != nil {
		return exitFailure, fmt.Errorf("running the agent: %w", err)
	}
	return s.finish(end)
}

// observe adds an event to the tally, and reports activity. Only the agent's output counts as activity, not a running process.
func (s *session) observe(event *agentprofile.Event) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.tally.Add(event)
	s.words.hear(event, s.events.now())
	report := s.total()
	s.lease.reportActivity(report.CostUSD)
	if report.Conversation != "" && report.Conversation != s.recordedFor {
		s.recordedFor = report.Conversation
		s.record(&report, false)
	}
}

// record stores the conversation in the workspace. A failure only prevents resuming.
func (s *session) record(report *agentprofile.Report, finished bool) {
	s.state.Sessions[s.inputs.name] = sessionState{
		Profile: s.profile.Name, Conversation: report.Conversation, Run: s.inputs.run, Finished: finished,
		Directory: s.inputs.workingDirectory(),
	}
	if report.Sums != nil && s.profile.Totals == agentprofile.TotalsOfConversation {
		s.state.Conversations[report.Conversation] = *report.Sums
	}
	if err := s.state.write(); err != nil {
		s.events.report("Storing the conversation: %s", err)
	}
}

// finish records the end of a process, and returns the exit code.
func (s *session) finish(end agentEnd) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	report := s.tally.Report()
	if report.Conversation != "" {
		s.record(&report, report.Finished && !report.Failed)
	}
	s.earlier = append(s.earlier, report)
	s.tally = nil
	reason := s.words.reason()
	if report.Failed {
		reason = cmp.Or(report.Answer, reason)
	}
	switch {
	case (end.exitCode == 0 || end.silent) && report.Finished && !report.Failed:
		return exitSuccess, nil // also if the runner is terminated: the work is complete
	case end.terminated:
		return exitTerminated, nil
	case end.signal != 0 && !end.silent:
		return exitFailure, fmt.Errorf("the agent was ended by %s: %s", describeSignal(end.signal), reason)
	case end.exitCode != 0 && !end.silent:
		code, description := end.exitCode, strconv.Itoa(end.exitCode)
		if signal := syscall.Signal(code - shellSignalCode); unix.SignalName(signal) != "" {
			description += ", as after " + describeSignal(signal)
		}
		if code > maxAgentCode {
			code = exitFailure
		}
		return code, fmt.Errorf("the agent exited with code %s: %s", description, reason)
	case report.Failed:
		return exitFailure, fmt.Errorf("the agent failed: %s", reason)
	default:
		return exitFailure, fmt.Errorf("the agent exited with code 0, but did not report that it finished its work: %s", reason)
	}
}

// total returns the sum of all processes of this attempt.
func (s *session) total() agentprofile.Report {
	reports := s.earlier
	if s.tally != nil {
		reports = append(slices.Clip(reports), s.tally.Report())
	}
	return sumReports(reports)
}

// sumReports returns the last report, with the sums of all reports. An unknown cost in one report makes the sum a lower bound.
func sumReports(reports []agentprofile.Report) agentprofile.Report {
	if len(reports) == 0 {
		return agentprofile.Report{}
	}
	total := reports[len(reports)-1]
	for i := range reports[:len(reports)-1] {
		r := &reports[i]
		total.ToolCalls += r.ToolCalls
		total.Finished = total.Finished && r.Finished
		total.Interrupted = total.Interrupted || r.Interrupted
		total.UsageComplete = total.UsageComplete && r.UsageComplete
		if total.Usage != nil && r.Usage != nil {
			total.Usage = new(total.Usage.Add(*r.Usage))
		}
		switch {
		case r.CostUSD == nil:
			total.Finished = false // so that the cost, which is a lower bound, is not taken for the whole cost
		case total.CostUSD == nil:
			total.CostUSD, total.Finished = r.CostUSD, false
		default:
			total.CostUSD = new(*total.CostUSD + *r.CostUSD)
		}
	}
	return total
}

func (s *session) result(failure error) *result {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	report := s.total()
	r := newResult(&report, s.lease.earlierCost)
	if failure != nil && (r.Summary == "" || !report.Failed) { // an answer is no reason, unless the agent reported its failure
		r.Summary = failure.Error()
	}
	r.Summary, r.Repositories = s.events.redact.string(r.Summary), s.pushed
	return r
}
