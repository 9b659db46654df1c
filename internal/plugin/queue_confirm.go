package plugin

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// confirmIrreversible asks the user to confirm an action that cannot be undone. Without a
// terminal it returns an error, and the user has to set --yes.
func (e *environment) confirmIrreversible(action, word string) error {
	if !isInteractive(e.in) {
		return fmt.Errorf("cannot %s without confirmation: set --yes, or run on a terminal", action)
	}
	fmt.Fprintf(e.errOut, "About to %s. This cannot be undone. Type %s to continue: ", action, word)
	return checkConfirmation(e.in, action, word)
}

// checkConfirmation returns an error unless the answer is the word.
func checkConfirmation(in io.Reader, action, word string) error {
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != word {
		return fmt.Errorf("did not %s: the answer was not %q", action, word)
	}
	return nil
}

func isInteractive(in io.Reader) bool {
	file, isFile := in.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}
