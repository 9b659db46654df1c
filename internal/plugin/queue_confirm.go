package plugin

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// confirmIrreversible asks, on a terminal, whether what cannot be undone is meant. Elsewhere nobody can
// answer, and only --yes will do.
func (e *environment) confirmIrreversible(deed, word string) error {
	if !isInteractive(e.in) {
		return fmt.Errorf("to %s needs --yes, or a terminal to ask on", deed)
	}
	fmt.Fprintf(e.errOut, "About to %s. This cannot be undone. Type %s to go on: ", deed, word)
	return checkConfirmation(e.in, deed, word)
}

// checkConfirmation tells unless the answer is that word.
func checkConfirmation(in io.Reader, deed, word string) error {
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != word {
		return fmt.Errorf("did not %s: the answer was not %q", deed, word)
	}
	return nil
}

func isInteractive(in io.Reader) bool {
	file, isFile := in.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}
