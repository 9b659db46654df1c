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

func newExplainJobCommand(env *environment) *cobra.Command {
	classify := func(job *batchv1.Job) jobreport.Finding {
		return jobreport.Classify(job, env.now(), jobreport.DefaultThresholds())
	}
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
		ValidArgsFunction: func(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(given) > 0 {
				return nil, noFileCompletion
			}
			return completeObjects(command, env, nil, &objectSelection{}, &batchv1.JobList{}, func(job *batchv1.Job) string { return string(classify(job).Category) })
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
			details := render.JobDetails{Job: job, Finding: classify(job)}
			details.Pods, details.Events = env.readJobDetails(command.Context(), cluster, job)
			return terminal.WriteLines(env.out, render.JobExplanation(env.outputStyle(), details, env.now()))
		},
	}
}

// readJobDetails reads the Job's Pods and events. It reports unreadable objects as unknown.
func (e *environment) readJobDetails(ctx context.Context, cluster *clusterConnection, job *batchv1.Job) ([]corev1.Pod, []corev1.Event) {
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

func (e *environment) warnUnknown(what string, err error) {
	for _, line := range describeError(err) {
		fmt.Fprintf(e.errOut, "warning: the Job's %s are unknown: %s\n", what, line)
	}
}
