package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// maxExplainedPods limits the Pods whose events are read: one request each.
const maxExplainedPods = 20

type explainJobCommand struct {
	*environment
}

func newExplainJobCommand(env *environment) *cobra.Command {
	e := &explainJobCommand{env}
	return &cobra.Command{
		Use:   "explain JOB",
		Short: "Explain why a Job is stale, from its Pods and events",
		Long: "Explain the state of a Job. Other than the report, this reads the Job's Pods and events, with your permissions, " +
			"and so finds causes that the Job does not state: Pods that fit no node, an exhausted quota, a missing image.\n\n" +
			"What you may not read is reported as unknown on standard error.",
		Args: func(command *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s requires the name of one Job", command.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: e.completeJobs,
		RunE:              func(command *cobra.Command, args []string) error { return e.explainJob(command.Context(), args[0]) },
	}
}

func (e *explainJobCommand) explainJob(ctx context.Context, name string) error {
	cluster, err := e.connect(e.clientConfig)
	if err != nil {
		return err
	}
	job := &batchv1.Job{}
	if err := cluster.Get(ctx, client.ObjectKey{Namespace: cluster.namespace, Name: name}, job); err != nil {
		return err
	}
	pods, events := e.readDetails(ctx, cluster, job)
	return terminal.WriteLines(e.out, render.JobExplanation(e.outputStyle(), render.JobDetails{
		Job: job, Finding: jobreport.Classify(job, e.now(), jobreport.DefaultThresholds()), Pods: pods, Events: events,
	}, e.now()))
}

// readDetails reads the Job's Pods and events. It reports unreadable objects as unknown.
func (e *explainJobCommand) readDetails(ctx context.Context, cluster *clusterConnection, job *batchv1.Job) ([]corev1.Pod, []corev1.Event) {
	pods := &corev1.PodList{}
	if err := cluster.List(ctx, pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}); err != nil {
		e.warnUnknown("Pods", err)
	}
	uids := []types.UID{job.UID}
	for i := range pods.Items[:min(len(pods.Items), maxExplainedPods)] {
		uids = append(uids, pods.Items[i].UID)
	}
	var events []corev1.Event
	for _, uid := range uids {
		list := &corev1.EventList{}
		if err := cluster.List(ctx, list, client.InNamespace(job.Namespace), client.MatchingFields{"involvedObject.uid": string(uid)}); err != nil {
			e.warnUnknown("events", err)
			break
		}
		events = append(events, list.Items...)
	}
	return pods.Items, events
}

func (e *explainJobCommand) warnUnknown(what string, err error) {
	for _, line := range describeError(err) {
		fmt.Fprintf(e.errOut, "warning: the Job's %s are unknown: %s\n", what, line)
	}
}

func (e *explainJobCommand) completeJobs(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, noFileCompletion
	}
	return completeObjects(command, e.environment, nil, &objectSelection{}, &batchv1.JobList{}, func(job *batchv1.Job) string {
		return string(jobreport.Classify(job, e.now(), jobreport.DefaultThresholds()).Category)
	})
}
