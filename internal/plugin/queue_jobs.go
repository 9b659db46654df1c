package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

type jobCommand struct {
	*environment

	format string
	states []string
	limit  int
}

// activeStates are the states that `queue jobs` lists by default.
var activeStates = []string{string(jobstate.Running), string(jobstate.Retrying), string(jobstate.Waiting)}

// listableStates are the values of --state.
var listableStates = append(activeStates, string(jobstate.Dead), string(jobstate.Done), string(jobstate.Canceled))

const jobsHelp = " Its Queue must have spec.results. The plugin reads the broker's Secrets with your permissions."

func newJobsCommand(env *environment) *cobra.Command {
	j := &jobCommand{environment: env}
	command := newBrokerCommand(env, "jobs NAME", "List the jobs that workers of a Queue have reported",
		"List the jobs that workers of a Queue have reported, the last change first. Jobs that wait for their first attempt are not "+
			"among them, unless they are tracked."+jobsHelp, j.listJobs)
	command.PreRunE = func(*cobra.Command, []string) error {
		const maxLimit = 10_000
		if j.limit < 1 || j.limit > maxLimit {
			return fmt.Errorf("invalid --limit %d: must be 1 to %d", j.limit, maxLimit)
		}
		for _, state := range j.states {
			if err := validateChoice("state", state, listableStates...); err != nil {
				return err
			}
		}
		return nil
	}
	const defaultLimit = 100
	command.Flags().StringSliceVar(&j.states, "state", activeStates, "States of the jobs to list: "+strings.Join(listableStates, ", ")+".")
	command.Flags().IntVar(&j.limit, "limit", defaultLimit, "Maximum number of jobs to list.")
	addOutputFlag(command, &j.format, outputTable, outputJSON, outputYAML)
	completeValues(command, "state", listableStates...)
	return command
}

func newShowJobCommand(env *environment) *cobra.Command {
	j := &jobCommand{environment: env}
	command := newBrokerCommand(env, "job NAME ID", "Show a job of a Queue",
		"Show the state of one job of a Queue: attempts, progress, error and result. What the broker cannot confirm is Unknown."+jobsHelp, j.showJob)
	addOutputFlag(command, &j.format, outputTable, outputJSON, outputYAML)
	return command
}

func (q *connectedQueue) jobStore() (broker.JobStore, error) {
	store, isStore := q.Engine.(broker.JobStore)
	if !isStore {
		return nil, errors.New("the engine of its broker keeps no states of jobs")
	}
	return store, nil
}

// storeOf validates the ID of a job, and returns the store of its state.
func (q *connectedQueue) storeOf(id string) (broker.JobStore, error) {
	store, err := q.jobStore()
	if err != nil {
		return nil, err
	}
	return store, broker.ValidateStoredJob(q.brokerName, id)
}

func (j *jobCommand) listJobs(ctx context.Context, q *connectedQueue, _ []string) error {
	store, err := q.jobStore()
	if err != nil {
		return err
	}
	var states []jobstate.State
	for _, state := range j.states {
		states = append(states, jobstate.State(state))
	}
	list, err := store.ListJobs(ctx, q.brokerName, states, j.limit)
	if err != nil {
		return err
	}
	if j.format != outputTable {
		all := []jobOutput{}
		for i := range list.Jobs {
			all = append(all, newJobOutput(&list.Jobs[i]))
		}
		return printEncoded(j.out, j.format, all)
	}
	if len(list.Jobs) == 0 {
		fmt.Fprintf(j.errOut, "%s has no such jobs.\n", queueKind.qualifiedName(q.Queue))
		return nil
	}
	rows := [][]string{{"ID", "STATE", "KIND", "ATTEMPT", "STARTED", "NEXT", "PROGRESS", "ERROR"}}
	for i := range list.Jobs {
		job := &list.Jobs[i]
		rows = append(rows, []string{
			terminal.Sanitize(job.ID), string(job.State), cmp.Or(terminal.Sanitize(job.Kind), "-"), formatAttempt(job), formatAge(job.StartTime, j.now()),
			formatWait(job.NextTime, j.now()), cmp.Or(formatProgress(job.Progress), "-"), terminal.Truncate(terminal.Sanitize(job.Error), maxErrorColumns),
		})
	}
	lines := j.outputStyle().Table(rows)
	if list.Omitted {
		lines = append(lines, "", fmt.Sprintf("showing the last %d; there may be more", len(list.Jobs)))
	}
	return terminal.WriteLines(j.out, lines)
}

// maxErrorColumns is the width of an error in a table.
const maxErrorColumns = 120

func formatAttempt(job *jobstate.Info) string {
	if job.MaxAttempts == 0 {
		return strconv.Itoa(job.Attempt)
	}
	return fmt.Sprintf("%d/%d", job.Attempt, job.MaxAttempts)
}

func formatWait(t, now time.Time) string {
	if t.IsZero() || !t.After(now) {
		return "-"
	}
	return "in " + duration.HumanDuration(t.Sub(now))
}

func formatProgress(p *jobstate.Progress) string {
	if p == nil {
		return ""
	}
	const percent = 100
	return strings.TrimSpace(fmt.Sprintf("%.0f%% %s", p.Fraction*percent, terminal.Sanitize(p.Text)))
}

type jobOutput struct {
	ID              string             `json:"id"`
	State           jobstate.State     `json:"state"`
	Kind            string             `json:"kind,omitempty"`
	Priority        string             `json:"priority,omitempty"`
	Attempt         int                `json:"attempt"`
	MaxAttempts     int                `json:"maxAttempts,omitempty"`
	Started         time.Time          `json:"started,omitzero"`
	Next            time.Time          `json:"next,omitzero"`
	Updated         time.Time          `json:"updated,omitzero"`
	Error           string             `json:"error,omitempty"`
	Progress        *jobstate.Progress `json:"progress,omitempty"`
	Result          json.RawMessage    `json:"result,omitempty"`
	CancelRequested bool               `json:"cancelRequested,omitempty"`
}

func newJobOutput(job *jobstate.Info) jobOutput {
	return jobOutput{
		job.ID, job.State, job.Kind, job.Priority, job.Attempt, job.MaxAttempts, job.StartTime, job.NextTime, job.UpdateTime, job.Error,
		job.Progress, job.Result, job.CancelRequested,
	}
}

func (j *jobCommand) showJob(ctx context.Context, q *connectedQueue, args []string) error {
	store, err := q.storeOf(args[0])
	if err != nil {
		return err
	}
	job, err := store.Job(ctx, q.brokerName, args[0])
	if err != nil {
		return err
	}
	if j.format != outputTable {
		return printEncoded(j.out, j.format, newJobOutput(&job))
	}
	rows := [][]string{{"ID:", terminal.Sanitize(job.ID)}, {"State:", string(job.State)}}
	add := func(name, value string) {
		if value != "" && value != "-" {
			rows = append(rows, []string{name, value})
		}
	}
	if job.CancelRequested {
		add("Cancel:", "requested")
	}
	add("Kind:", terminal.Sanitize(job.Kind))
	add("Priority:", terminal.Sanitize(job.Priority))
	if job.Attempt > 0 {
		add("Attempt:", formatAttempt(&job))
	}
	for _, t := range []struct {
		name string
		time time.Time
	}{{"Started:", job.StartTime}, {"Updated:", job.UpdateTime}} {
		if !t.time.IsZero() {
			add(t.name, formatAge(t.time, j.now())+" ago")
		}
	}
	add("Next:", formatWait(job.NextTime, j.now()))
	add("Progress:", formatProgress(job.Progress))
	add("Error:", terminal.Sanitize(job.Error))
	add("Result:", terminal.Sanitize(string(job.Result)))
	return terminal.WriteLines(j.out, terminal.AlignColumns(rows))
}

func newCancelJobCommand(env *environment) *cobra.Command {
	return newBrokerCommand(env, "cancel NAME ID", "Cancel a job of a Queue",
		"Cancel a job of a Queue. A job that waits does not run. The context of the handler of a running job ends; the job may be done before."+jobsHelp,
		func(ctx context.Context, q *connectedQueue, args []string) error {
			store, err := q.storeOf(args[0])
			if err != nil {
				return err
			}
			canceled, err := broker.CancelStoredJob(ctx, store, q.brokerName, args[0])
			if err != nil {
				return err
			}
			id, name := terminal.Sanitize(args[0]), queueKind.qualifiedName(q.Queue)
			switch {
			case canceled.Removed:
				fmt.Fprintf(env.out, "job %s of %s canceled\n", id, name)
			case canceled.Ended:
				fmt.Fprintf(env.out, "job %s of %s has ended: it is %s\n", id, name, canceled.State)
			default:
				fmt.Fprintf(env.out, "job %s of %s: cancellation requested, it is %s\n", id, name, canceled.State)
			}
			return nil
		})
}
