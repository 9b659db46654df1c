package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// rerunCommand is `kubectl yardmaster seq rerun`.
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
	sj.Spec.Rerun = &v1alpha1.Rerun{ID: r.newRequestID(), From: r.from, Parameters: parameters}
	if err := checkRerunnable(before, sj.Spec.Rerun); err != nil {
		return fmt.Errorf("%s: %w", qualifiedName, err)
	}
	if err := cluster.patchIfUnchanged(ctx, qualifiedName, before, sj); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "%s reruns from %s: run %d, id %s\n", qualifiedName, r.from, sj.Status.Run+1, sj.Spec.Rerun.ID)
	if sj.Spec.Suspend {
		fmt.Fprintf(r.errOut, "%s is suspended: the rerun starts when it is resumed\n", qualifiedName)
	}
	if r.watch {
		return sequentialJobKind.watchObject(ctx, r.environment, cluster, sj, true)
	}
	return nil
}

// parseParameters parses NAME=VALUE. The names must be those of spec.parameters.
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

// newRequestID returns the ID of the flag, or generates a unique one.
func (r *rerunCommand) newRequestID() string {
	if r.id != "" {
		return r.id
	}
	const randomLength = 5
	return r.now().UTC().Format("20060102-150405-") + rand.String(randomLength)
}

// checkRerunnable returns an error that says why the operator would not carry out the
// request, or not as intended.
func checkRerunnable(sj *v1alpha1.SequentialJob, request *v1alpha1.Rerun) error {
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
