package plugin

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/kube/joblist"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// Bounds of what an explanation reads.
const (
	maxExplainedPods = 500
	// maxEventPods limits the Pods whose events are read: one request each.
	maxEventPods    = 20
	maxLogLines     = 10
	maxLogLineBytes = 1000
)

func newExplainJobCommand(env *environment) *cobra.Command {
	format := ""
	var thresholds *thresholdFlags
	command := &cobra.Command{
		Use:   "explain JOB",
		Short: "Explain why a Job is stale, from its Pods, events and log",
		Long: "Explain the state of a Job, with the same verdict as the report. Other than the report, this reads the Job's Pods, events and log, " +
			"with your permissions, and so finds causes that the Job does not state: Pods that fit no node, an exhausted quota, a missing image, " +
			"a sidecar that runs on after the work has ended.\n\n" +
			"What you may not read is reported as unknown on standard error.",
		Args: func(command *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s requires the name of one Job", command.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: func(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(given) > 0 {
				return nil, noFileCompletion
			}
			return completeObjects(command, env, nil, &objectSelection{}, &batchv1.JobList{}, func(job *batchv1.Job) string {
				return string(jobreport.Classify(job, env.now(), jobreport.DefaultThresholds()).Category)
			})
		},
		RunE: func(command *cobra.Command, args []string) error {
			cluster, err := env.connect(env.clientConfig)
			if err != nil {
				return err
			}
			job := &batchv1.Job{}
			if err := cluster.Get(command.Context(), client.ObjectKey{Namespace: cluster.namespace, Name: args[0]}, job); err != nil {
				return err
			}
			details := render.JobDetails{Job: job}
			if details.Finding, details.SupersededBy, err = env.findVerdict(command.Context(), cluster, job, thresholds); err != nil {
				return err
			}
			details.Pods, details.Events = env.readJobDetails(command.Context(), cluster, job)
			explanation := render.ExplainJob(&details)
			if pod := explanation.LogOf; pod != nil {
				explanation.Log = env.readLastLines(command.Context(), cluster, job.Namespace, pod)
			}
			if format != outputTable {
				return printEncoded(env.out, format, explanation)
			}
			return terminal.WriteLines(env.out, explanation.Lines(env.outputStyle(), env.now()))
		},
	}
	addOutputFlag(command, &format, outputTable, outputJSON, outputYAML)
	thresholds = addThresholdFlags(command)
	return command
}

// findVerdict returns the finding of the report about a Job, and the Job that supersedes its failure, if any. It reads the other
// Jobs of the namespace only if one of them can matter.
func (e *environment) findVerdict(
	ctx context.Context, cluster *clusterConnection, job *batchv1.Job, thresholds *thresholdFlags,
) (finding jobreport.Finding, supersededBy string, err error) {
	report := &v1alpha1.JobReport{}
	warning, err := unknownThresholds(cluster.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: v1alpha1.JobReportName}, report))
	if err != nil {
		return finding, "", err
	}
	fmt.Fprint(e.errOut, warning)
	entry := jobreport.NewEntry(job, e.now(), thresholds.with(report))
	if !entry.CanBeSuperseded() {
		return entry.Finding, "", nil
	}
	err = joblist.ForEach(ctx, cluster, job.Namespace, func() { supersededBy = "" }, func(other *batchv1.Job) {
		if entry.IsSupersededBy(jobreport.SeriesOf(other)) {
			supersededBy = other.Name
		}
	})
	if err != nil {
		e.warnUnknown("successors", err)
		return entry.Finding, "", nil
	}
	if supersededBy != "" {
		return jobreport.Finding{Category: jobreport.CategoryHealthy}, supersededBy, nil
	}
	return entry.Finding, "", nil
}

// readJobDetails reads the Job's Pods and events. It reports unreadable objects as unknown.
func (e *environment) readJobDetails(ctx context.Context, cluster *clusterConnection, job *batchv1.Job) ([]corev1.Pod, []corev1.Event) {
	pods := &corev1.PodList{}
	err := cluster.List(ctx, pods, client.InNamespace(job.Namespace), client.Limit(maxExplainedPods),
		client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)})
	if err != nil {
		e.warnUnknown("Pods", err)
	}
	uids := []types.UID{job.UID}
	for i := range pods.Items[:min(len(pods.Items), maxEventPods)] {
		uids = append(uids, pods.Items[i].UID)
	}
	return pods.Items, e.readEvents(ctx, cluster, job.Namespace, uids)
}

// readEvents reads the events about objects with one request each. It reports unreadable events as unknown.
func (e *environment) readEvents(ctx context.Context, cluster *clusterConnection, namespace string, uids []types.UID) []corev1.Event {
	var events []corev1.Event
	for _, uid := range uids {
		list := &corev1.EventList{}
		if err := cluster.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"involvedObject.uid": string(uid)}); err != nil {
			e.warnUnknown("events", err)
			break
		}
		events = append(events, list.Items...)
	}
	return events
}

// readLastLines reads the last lines of a container's log. It reports an unreadable log as unknown.
func (e *environment) readLastLines(ctx context.Context, cluster *clusterConnection, namespace string, of *render.ContainerLog) []string {
	options := &corev1.PodLogOptions{Container: of.Container, Previous: of.Previous, TailLines: new(int64(maxLogLines)), LimitBytes: new(int64(maxLogLines * maxLogLineBytes))}
	log, err := cluster.podsGetter.Pods(namespace).GetLogs(of.Pod, options).Stream(ctx)
	if err != nil {
		e.warnUnknown("log", err)
		return nil
	}
	defer func() { _ = log.Close() }() // a log that was only read
	var lines []string
	scanner := bufio.NewScanner(io.LimitReader(log, maxLogLines*maxLogLineBytes))
	for scanner.Scan() && len(lines) < maxLogLines {
		lines = append(lines, jobreport.TruncateText(scanner.Text(), maxLogLineBytes))
	}
	return lines
}

func (e *environment) warnUnknown(what string, err error) {
	for _, line := range describeError(err) {
		fmt.Fprintf(e.errOut, "warning: the Job's %s are unknown: %s\n", what, line)
	}
}
