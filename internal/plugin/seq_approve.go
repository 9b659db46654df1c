package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
)

// approveCommand is `kubectl yardmaster seq approve`.
type approveCommand struct {
	*environment

	step string
}

func newApproveCommand(env *environment) *cobra.Command {
	a := &approveCommand{environment: env}
	command := sequentialJobKind.newObjectCommand(env, "approve", "Approve the step that a SequentialJob waits with",
		"Approve the start of the step that waits because of step.suspendBefore. The status records your user name.\n\n"+
			"If no step waits, or not the one that --step names, the command says so and writes nothing.",
		a.approve)
	command.Flags().StringVar(&a.step, "step", "", "Approve only if this step waits.")
	panicOnError(command.RegisterFlagCompletionFunc("step", env.completeStepName))
	return command
}

func (a *approveCommand) approve(ctx context.Context, cluster *clusterConnection, sj *v1alpha1.SequentialJob) error {
	qualifiedName := sequentialJobKind.qualifiedName(sj)
	step := sequentialjob.AwaitingApproval(sj)
	switch {
	case step == "":
		return fmt.Errorf("%s: cannot approve: no step waits for an approval", qualifiedName)
	case a.step != "" && a.step != step:
		return fmt.Errorf("%s: cannot approve step %q: step %q waits for an approval", qualifiedName, a.step, step)
	}
	user, err := cluster.userName(ctx)
	if err != nil {
		return err
	}
	approval, err := json.Marshal(sequentialjob.Approval{Run: sj.Status.Run, Step: step, By: user})
	if err != nil {
		return err
	}
	before := sj.DeepCopy()
	metav1.SetMetaDataAnnotation(&sj.ObjectMeta, v1alpha1.AnnotationApproval, string(approval))
	if err := cluster.patchIfUnchanged(ctx, qualifiedName, before, sj); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s: step %s of run %d approved by %s\n", qualifiedName, step, sj.Status.Run, user)
	return nil
}

// userName returns the name of the user of the connection.
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
