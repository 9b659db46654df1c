package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

func newSequenceCommand(env *environment) *cobra.Command {
	return newParentCommand("seq", []string{"sequentialjob", "sj"}, "Inspect and control SequentialJobs",
		newListCommand(env, sequentialJobKind, "List SequentialJobs with a symbol for each step"),
		newWatchUntilFinishedCommand(env, sequentialJobKind, "Watch SequentialJobs",
			"Watch the steps of a SequentialJob until its run finishes. Without a NAME, watch all SequentialJobs in the namespace until interrupted.\n\n"+
				watchOutputHelp+"The exit code is 0 if all completed, 1 if one failed, and 2 if watching failed.",
			"Exit when all runs have finished."),
		newCreateSequenceCommand(env), newDescribeCommand(env, sequentialJobKind, v1alpha1.LabelSequentialJobUID), newSequenceLogsCommand(env), newRerunCommand(env), newApproveCommand(env),
		newChangeCommand(env, specChange[*v1alpha1.SequentialJob]{
			kind: sequentialJobKind, verb: "suspend", short: "Suspend SequentialJobs",
			long: "Suspend SequentialJobs. With suspendPolicy AfterCurrent, the running step finishes first. " +
				"With Immediate, it is stopped, and starts over on resume.",
			changeSpec:     func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true },
			changedMessage: "suspended", unchangedMessage: "is already suspended", overwrite: true,
			remark: func(sj *v1alpha1.SequentialJob) string {
				if !isRunFinished(sj) {
					return ""
				}
				return "; its run has finished, and the next run will wait until it is resumed"
			},
		}),
		newChangeCommand(env, specChange[*v1alpha1.SequentialJob]{
			kind: sequentialJobKind, verb: "resume", short: "Resume SequentialJobs", long: "Resume suspended SequentialJobs.",
			changeSpec:     func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false },
			changedMessage: "resumed", unchangedMessage: "is not suspended", overwrite: true,
		}))
}

func newSequenceLogsCommand(env *environment) *cobra.Command {
	l := &logsCommand[*v1alpha1.SequentialJob]{
		environment: env, kind: sequentialJobKind, podLabel: v1alpha1.LabelSequentialJobUID,
		newStreamer: func(
			ctx context.Context, pods logs.PodClient, sj *v1alpha1.SequentialJob, options logs.StreamOptions,
		) (logStreamer[*v1alpha1.SequentialJob], error) {
			if steps := logs.StepNames(sj); options.Step != "" && !slices.Contains(steps, options.Step) {
				return nil, fmt.Errorf("invalid --step %q: must be one of %s", options.Step, strings.Join(steps, ", "))
			}
			return logs.NewSequenceStreamer(ctx, pods, sj, options)
		},
	}
	command := l.newCommand("Print the logs of a SequentialJob's steps",
		"Print the logs of a SequentialJob's steps in order. Each line starts with the step's name.\n\n"+
			"If a step can have several Pods, its name is followed by the end of the Pod's name. If the line is from another container, "+
			"such as an init container, its name follows too.",
		"Keep printing, step after step, until the run finishes.")
	command.Flags().StringVar(&l.options.Step, "step", "", "Print only the logs of this step.")
	panicOnError(command.RegisterFlagCompletionFunc("step", env.completeStepName))
	return command
}

// isRunFinished reports whether no further change is expected: the run has finished, and no rerun is pending.
func isRunFinished(sj *v1alpha1.SequentialJob) bool {
	return sj.Status.CompletionTime != nil && !isRerunPending(sj)
}

// isRerunPending reports whether a valid rerun is requested that the operator has not started.
func isRerunPending(sj *v1alpha1.SequentialJob) bool {
	return sequentialjob.IsRerunRequested(&sj.Spec, &sj.Status) && sequentialjob.CheckRerun(&sj.Spec, &sj.Status) == nil
}

type approveCommand struct {
	*environment

	step, hash string
	parameters []string
}

func newApproveCommand(env *environment) *cobra.Command {
	a := &approveCommand{environment: env}
	command := sequentialJobKind.newObjectCommand(env, "approve", "Approve the step that a SequentialJob waits with",
		"Approve the start of the step that waits because of step.requireApproval, with what it runs now. The command prints it. "+
			"If it changes before the step starts, the step waits again. The status records your user name.\n\n"+
			"If no step waits, or not the one that --step names, or not with the content that --hash names, the command says so and writes nothing.",
		a.approve)
	f := command.Flags()
	f.StringVar(&a.step, "step", "", "Approve only if this step waits.")
	f.StringVar(&a.hash, "hash", "", "Approve only this content: status.approval.hash.")
	f.StringArrayVarP(&a.parameters, "parameter", "p", nil, "NAME=VALUE: value of a parameter from this step on. Can be repeated.")
	panicOnError(command.RegisterFlagCompletionFunc("step", env.completeStepName))
	return command
}

func (a *approveCommand) approve(ctx context.Context, cluster *clusterConnection, sj *v1alpha1.SequentialJob) error {
	qualifiedName := sequentialJobKind.qualifiedName(sj)
	step, wanted := sequentialjob.AwaitingApproval(sj), sj.Status.Approval
	switch {
	case step == "":
		return fmt.Errorf("%s: cannot approve: no step waits for an approval", qualifiedName)
	case a.step != "" && a.step != step:
		return fmt.Errorf("%s: cannot approve step %q: step %q waits for an approval", qualifiedName, a.step, step)
	case wanted == nil || wanted.Step != step || sj.Status.ObservedGeneration != sj.Generation:
		return fmt.Errorf("%s: cannot approve step %q: the operator has not observed the last change; try again", qualifiedName, step)
	case a.hash != "" && a.hash != wanted.Hash:
		return fmt.Errorf("%s: cannot approve step %q: its content has changed: its hash is %s", qualifiedName, step, wanted.Hash)
	}
	shown := sj.DeepCopy()
	values, err := parseParameters(&sj.Spec, a.parameters)
	if err == nil {
		shown.Status.Parameters, err = sequentialjob.ReplaceParameters(sj.Status.Parameters, values)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", qualifiedName, err)
	}
	user, err := cluster.userName(ctx)
	if err != nil {
		return err
	}
	before := sj.DeepCopy()
	approval := sequentialjob.Approval{SequenceApproval: *wanted, Parameters: values, By: user}
	if err := approval.Write(sj); err != nil {
		return err
	}
	for _, line := range render.AwaitingStep(shown) {
		fmt.Fprintln(a.out, line)
	}
	if err := cluster.patchIfUnchanged(ctx, qualifiedName, before, sj); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s: step %s of run %d approved by %s\n", qualifiedName, step, wanted.Run, user)
	return nil
}

func (c *clusterConnection) userName(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "", fmt.Errorf("reading your user name: %w", err)
	}
	if review.Status.UserInfo.Username == "" {
		return "", errors.New("reading your user name: the API server returned none")
	}
	return review.Status.UserInfo.Username, nil
}

type rerunCommand struct {
	*environment

	from, id   string
	parameters []string
	watch      bool
}

func newRerunCommand(env *environment) *cobra.Command {
	r := &rerunCommand{environment: env}
	command := sequentialJobKind.newObjectCommand(env, "rerun", "Rerun a finished SequentialJob",
		"Rerun a finished SequentialJob with its current spec.\n\n"+
			"If the rerun is not possible, the command says why and writes nothing. With --watch, the exit code is that of `seq watch`.",
		r.requestRerun)
	f := command.Flags()
	f.StringVar(&r.from, "from", v1alpha1.RerunFromFailed, "Where to start: Failed, Start or the name of a step. Earlier steps keep their outcome.")
	f.StringVar(&r.id, "id", "", "ID of the request, at most 63 characters. The default is generated from the time and a random suffix.")
	f.StringArrayVarP(&r.parameters, "parameter", "p", nil, "NAME=VALUE: value of a parameter in the rerun. Can be repeated.")
	f.BoolVarP(&r.watch, "watch", "w", false, "Watch the rerun until it finishes.")
	panicOnError(command.RegisterFlagCompletionFunc("from", env.completeRerunStart))
	return command
}

func (r *rerunCommand) requestRerun(ctx context.Context, cluster *clusterConnection, sj *v1alpha1.SequentialJob) error {
	qualifiedName := sequentialJobKind.qualifiedName(sj)
	before := sj.DeepCopy()
	parameters, err := parseParameters(&sj.Spec, r.parameters)
	if err != nil {
		return fmt.Errorf("%s: %w", qualifiedName, err)
	}
	sj.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: cmp.Or(r.id, newRequestID(r.now()))}, From: r.from, Parameters: parameters}
	if err := checkRerunnable(before, sj.Spec.Rerun); err != nil {
		return fmt.Errorf("%s: %w", qualifiedName, err)
	}
	if err := cluster.patchIfUnchanged(ctx, qualifiedName, before, sj); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "%s reruns from %s: run %d, id %s\n", qualifiedName, r.from, sj.Status.Run+1, sj.Spec.Rerun.ID)
	if warning := sequentialjob.RerunWarning(&sj.Spec, &before.Status); warning != "" {
		fmt.Fprintf(r.errOut, "%s: %s\n", qualifiedName, warning)
	}
	if sj.Spec.Suspend {
		fmt.Fprintf(r.errOut, "%s is suspended: the rerun starts when it is resumed\n", qualifiedName)
	}
	if r.watch {
		return sequentialJobKind.watchObject(ctx, r.environment, cluster, sj, true)
	}
	return nil
}

// parseParameters parses NAME=VALUE. The names must be in spec.parameters.
func parseParameters(spec *v1alpha1.SequentialJobSpec, assignments []string) ([]v1alpha1.Parameter, error) {
	var parameters []v1alpha1.Parameter
	for _, assignment := range assignments {
		name, value, found := strings.Cut(assignment, "=")
		switch {
		case !found:
			return nil, fmt.Errorf("invalid --parameter %q: must be NAME=VALUE", assignment)
		case !slices.ContainsFunc(spec.Parameters, func(p v1alpha1.Parameter) bool { return p.Name == name }):
			return nil, fmt.Errorf("invalid --parameter %q: spec.parameters has no %q", assignment, name)
		}
		parameters = append(parameters, v1alpha1.Parameter{Name: name, Value: value})
	}
	return parameters, nil
}

// newRequestID returns the id of a rerun that the user does not name.
func newRequestID(now time.Time) string {
	const randomLength = 5
	return now.UTC().Format("20060102-150405-") + rand.String(randomLength)
}

// checkRerunnable returns an error if the operator would not carry out the request, or not as intended.
func checkRerunnable(sj *v1alpha1.SequentialJob, request *v1alpha1.SequenceRerun) error {
	switch {
	case !sj.DeletionTimestamp.IsZero():
		return errors.New("cannot rerun: it is being deleted")
	case sj.Status.CompletionTime == nil:
		return fmt.Errorf("cannot rerun: its run has not finished, it is %s", render.SequencePhase(sj))
	case isRerunPending(sj):
		return fmt.Errorf("cannot rerun: rerun %q is already requested", sj.Spec.Rerun.ID)
	case request.ID == sj.Status.RerunID:
		return fmt.Errorf("cannot rerun: the last rerun had the id %q; choose another with --id", request.ID)
	}
	spec := sj.Spec.DeepCopy()
	spec.Rerun = request
	return sequentialjob.CheckRerun(spec, &sj.Status)
}
