package sessionarchive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"regexp"
	"slices"
)

const (
	summaryName = "summary.json"
	maxProblems = 1000
)

// safeName matches the names of steps, Pods and containers: one element of a path.
var safeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

type logArchive struct {
	settings *logSettings
	pods     *podReader
	store    store
	// temp is the directory for incomplete logs.
	temp string
	log  *slog.Logger
	// left is how many bytes of logs may still be stored.
	left    int64
	summary logSummary
	// failure is the first error that another attempt might not have.
	failure error
}

// logSummary is the last stored file, in the directory of the run.
type logSummary struct {
	// Logs are the stored files.
	Logs []archivedLog `json:"logs"`
	// Problems explain which logs are not stored.
	Problems []logProblem `json:"problems"`
	// OmittedProblems is the number of further problems.
	OmittedProblems int   `json:"omittedProblems,omitempty"`
	Bytes           int64 `json:"bytes"`
}

type archivedLog struct {
	Step      string `json:"step"`
	Attempt   int    `json:"attempt"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// File is below the directory of the run.
	File      string `json:"file"`
	Bytes     int64  `json:"bytes"`
	Truncated bool   `json:"truncated,omitempty"`
}

type logProblem struct {
	Step      string `json:"step,omitempty"`
	Attempt   int    `json:"attempt,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	Problem   string `json:"problem"`
}

// run archives all logs and then the summary. It returns a description of the archived logs.
func (a *logArchive) run(ctx context.Context) (string, error) {
	pods, more, err := a.pods.list(ctx, a.settings.sequenceUID, a.settings.jobs)
	if err != nil {
		return "", err
	}
	a.summary = logSummary{Logs: []archivedLog{}, Problems: []logProblem{}}
	if a.settings.omittedJobs > 0 {
		a.report(logProblem{Problem: fmt.Sprintf("the run has %d more Jobs, the oldest ones; their logs are not archived", a.settings.omittedJobs)})
	}
	if more {
		a.report(logProblem{Problem: fmt.Sprintf("the run has more than %d Pods; the logs of the others are not archived", a.settings.maxPods)})
	}
	for _, job := range a.settings.jobs {
		of := pods[job.uid]
		if len(of) == 0 {
			a.report(logProblem{Step: job.step, Attempt: job.attempt, Problem: "the Job has no Pods any more"})
		}
		for i := range of {
			if err := a.archivePod(ctx, job, &of[i]); err != nil {
				return "", err
			}
		}
	}
	raw, err := json.MarshalIndent(a.summary, "", "  ")
	if err == nil {
		write := func(to io.Writer) error {
			_, err := to.Write(append(raw, '\n'))
			return err
		}
		err = a.storeFile(ctx, summaryName, write, func() bool { return true })
	}
	if err != nil {
		return "", fmt.Errorf("storing the summary: %w", err)
	}
	if a.failure != nil {
		return "", fmt.Errorf("%s; %w", a.describe(), a.failure)
	}
	return a.describe(), nil
}

// describe summarizes the archived logs in a sentence.
func (a *logArchive) describe() string {
	truncated := 0
	for i := range a.summary.Logs {
		if a.summary.Logs[i].Truncated {
			truncated++
		}
	}
	text := fmt.Sprintf("logs: %d, bytes: %d", len(a.summary.Logs), a.summary.Bytes)
	if truncated > 0 {
		text += fmt.Sprintf(", truncated: %d", truncated)
	}
	if problems := len(a.summary.Problems) + a.summary.OmittedProblems; problems > 0 {
		text += fmt.Sprintf(", problems: %d (see %s), the first: %s", problems, summaryName, a.summary.Problems[0].Problem)
	}
	return text
}

func (a *logArchive) report(problem logProblem) {
	a.log.Warn("Logs are not archived", "step", problem.Step, "pod", problem.Pod, "container", problem.Container, "problem", problem.Problem)
	if len(a.summary.Problems) >= maxProblems {
		a.summary.OmittedProblems++
		return
	}
	a.summary.Problems = append(a.summary.Problems, problem)
}

// fail reports a problem that another attempt might not have, unless nothing is left to read.
func (a *logArchive) fail(problem logProblem, err error) {
	problem.Problem = err.Error()
	a.report(problem)
	if a.failure == nil && !isMissing(err) {
		a.failure = err
	}
}

// archivePod archives the logs of a Pod's containers. Only errors of the store and of ctx are returned.
func (a *logArchive) archivePod(ctx context.Context, job stepJob, listed *podMetadata) error {
	problem := logProblem{Step: job.step, Attempt: job.attempt, Pod: listed.Name}
	if !a.checkNames(problem, job.step, listed.Name) {
		return nil
	}
	p := &pod{}
	err := a.pods.read(ctx, a.pods.path(listed.Name), "application/json", p)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		a.fail(problem, fmt.Errorf("reading Pod %s: %w", listed.Name, err))
		return nil
	case p.Metadata.UID != listed.UID || p.Metadata.jobUID() != job.uid:
		problem.Problem = "the Pod was replaced by another one"
		a.report(problem)
		return nil
	}
	// Containers that run first are at the beginning.
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers, p.Spec.EphemeralContainers) {
		status := p.status(c.Name)
		hasRun := status != nil && (status.State.Waiting == nil || status.RestartCount > 0)
		if !hasRun {
			continue // there is no log
		}
		if status.RestartCount > 0 {
			if err := a.archiveLog(ctx, problem, c.Name, true); err != nil {
				return err
			}
		}
		if status.State.Waiting != nil {
			continue // only the previous container has a log
		}
		if err := a.archiveLog(ctx, problem, c.Name, false); err != nil {
			return err
		}
	}
	return nil
}

// checkNames reports whether the names can be names of files and directories, and records a problem otherwise. The API server accepts
// no other names.
func (a *logArchive) checkNames(of logProblem, names ...string) bool {
	for _, name := range names {
		if !safeName.MatchString(name) {
			of.Problem = fmt.Sprintf("%q cannot be the name of a file", name)
			a.report(of)
			return false
		}
	}
	return true
}

func (a *logArchive) archiveLog(ctx context.Context, of logProblem, container string, previous bool) error {
	of.Container = container
	if !a.checkNames(of, container) {
		return nil
	}
	if a.left <= 0 {
		of.Problem = fmt.Sprintf("the logs of the run are longer than %d bytes", a.settings.maxRunBytes)
		a.report(of)
		return nil
	}
	file := container + ".log"
	if previous {
		file = container + ".previous.log"
	}
	log := archivedLog{
		Step: of.Step, Attempt: of.Attempt, Pod: of.Pod, Container: container,
		File: path.Join(of.Step, fmt.Sprintf("attempt-%d", of.Attempt), of.Pod, file),
	}
	var readErr error
	err := a.storeFile(ctx, log.File, func(to io.Writer) (err error) {
		log.Bytes, log.Truncated, readErr = a.copyLog(ctx, to, of.Pod, container, previous)
		return nil
	}, func() bool { return readErr == nil || log.Bytes > 0 })
	if readErr != nil && ctx.Err() == nil {
		a.fail(of, fmt.Errorf("reading the log of container %s in Pod %s: %w", container, of.Pod, readErr))
	}
	if err != nil {
		return fmt.Errorf("storing %s: %w", log.File, err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("reading the log of container %s in Pod %s: %w", container, of.Pod, ctx.Err())
	}
	if readErr == nil || log.Bytes > 0 {
		a.left -= log.Bytes
		a.summary.Bytes += log.Bytes
		a.summary.Logs = append(a.summary.Logs, log)
	}
	return nil
}

// copyLog copies a log, and marks omitted parts.
func (a *logArchive) copyLog(ctx context.Context, to io.Writer, pod, container string, previous bool) (written int64, truncated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	limit := min(a.settings.maxLogBytes, a.left)
	body, err := a.pods.log(ctx, pod, container, previous, limit+1) // one more byte shows that the log is longer
	if err != nil {
		return 0, false, err
	}
	defer body.Close()
	written, err = io.CopyN(to, body, limit)
	switch {
	case errors.Is(err, io.EOF):
		return written, false, nil
	case err != nil:
		_, _ = io.WriteString(to, "\n[The log could not be read to its end.]\n")
		return written, true, err
	}
	if more, _ := io.CopyN(io.Discard, body, 1); more == 0 {
		return written, false, nil
	}
	_, err = fmt.Fprintf(to, "\n[The log is longer than %d bytes. Its rest is not archived.]\n", limit)
	return written, true, err
}

// storeFile stores a file below the directory of the run, unless isWanted returns false after it was written.
func (a *logArchive) storeFile(ctx context.Context, name string, write func(io.Writer) error, isWanted func() bool) error {
	file, err := os.CreateTemp(a.temp, ".log-")
	if err != nil {
		return err
	}
	defer file.Close()
	defer os.Remove(file.Name()) // without effect in a claim, where it was renamed
	if err := write(file); err != nil || !isWanted() {
		return err
	}
	_, err = a.store.put(ctx, file, path.Join(a.settings.prefix, a.settings.path, name))
	return err
}
