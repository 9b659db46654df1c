package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/sequence"
)

// rerunCommand is `kubectl yardmaster seq rerun`.
type rerunCommand struct {
	*environment

	from, id string
	watch    bool
}

func newRerunCommand(env *environment) *cobra.Command {
	r := &rerunCommand{environment: env}
	command := &cobra.Command{
		Use:   "rerun NAME",
		Short: "Run a finished SequentialJob again",
		Long: "Run a finished SequentialJob again, with its spec as it is now.\n\n" +
			"What cannot be is refused before anything is written. With --watch the exit code is that of `seq watch`.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: sequentialJobKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return r.requestRerun(command.Context(), args[0]) },
	}
	f := command.Flags()
	f.StringVar(&r.from, "from", v1alpha1.RerunFromFailed, "Where to begin: Failed, Start or a step's name. Steps before it keep their outcome.")
	f.StringVar(&r.id, "id", "", "Id of the request, any text of at most 63 characters. Left out: one of the time and chance.")
	f.BoolVarP(&r.watch, "watch", "w", false, "Watch the rerun to its end.")
	panicOnError(command.RegisterFlagCompletionFunc("from", env.completeRerunStart))
	return command
}

func (r *rerunCommand) requestRerun(ctx context.Context, name string) error {
	cluster, err := r.connect(r.clientConfig)
	if err != nil {
		return err
	}
	sj, err := cluster.getSequentialJob(ctx, name)
	if err != nil {
		return err
	}
	before := sj.DeepCopy()
	sj.Spec.Rerun = &v1alpha1.Rerun{ID: r.newRequestID(), From: r.from}
	if err := checkRerunnable(before, sj.Spec.Rerun); err != nil {
		return fmt.Errorf("%s: %w", sequentialJobKind().qualifiedName(sj), err)
	}
	// What was looked at must be what is run again.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := cluster.Patch(ctx, sj, patch); err != nil {
		return explainConflict(sequentialJobKind().qualifiedName(sj), err)
	}
	fmt.Fprintf(r.out, "%s runs again from %s: run %d, id %s\n", sequentialJobKind().qualifiedName(sj), r.from, sj.Status.Run+1, sj.Spec.Rerun.ID)
	if sj.Spec.Suspend {
		fmt.Fprintf(r.errOut, "%s is suspended: it begins when it is resumed\n", sequentialJobKind().qualifiedName(sj))
	}
	if r.watch {
		return watchableSequentialJobs().watchObject(ctx, r.environment, cluster, sj, true)
	}
	return nil
}

// newRequestID is unlike any other: of the second it was made in, and by chance.
func (r *rerunCommand) newRequestID() string {
	if r.id != "" {
		return r.id
	}
	const chars = 5
	return r.now().UTC().Format("20060102-150405-") + rand.String(chars)
}

// checkRerunnable tells why the request would not be acted on, or not as it is meant.
func checkRerunnable(sj *v1alpha1.SequentialJob, request *v1alpha1.Rerun) error {
	switch {
	case !sj.DeletionTimestamp.IsZero():
		return errors.New("cannot rerun: it is being deleted")
	case sj.Status.CompletionTime == nil:
		return fmt.Errorf("cannot rerun: its run has not ended, it is %s", render.SequencePhase(sj))
	case isRerunPending(sj):
		return fmt.Errorf("cannot rerun: another rerun is about to begin, with the id %q", sj.Spec.Rerun.ID)
	case request.ID == sj.Status.RerunID:
		return fmt.Errorf("cannot rerun: the id %q was that of the last rerun; choose another with --id", request.ID)
	}
	spec := sj.Spec.DeepCopy()
	spec.Rerun = request
	return sequence.CheckRerun(spec, &sj.Status)
}
