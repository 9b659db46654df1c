package runner

import (
	"bufio"
	"errors"
	"io"
)

const (
	// maxLineBytes bounds the memory for a line of an agent. Results are shorter; longer lines are those of tools.
	maxLineBytes = 1 << 20
	readBytes    = 64 << 10
)

// readLines calls handle for each line. A line that is too long is omitted, and handle gets its length instead.
func readLines(from io.Reader, handle func(line []byte, omitted int64)) error {
	reader := bufio.NewReaderSize(from, readBytes)
	var line []byte
	var omitted int64
	for {
		part, err := reader.ReadSlice('\n')
		switch {
		case omitted > 0:
			omitted += int64(len(part))
		case len(line)+len(part) > maxLineBytes:
			omitted, line = int64(len(line)+len(part)), nil // its memory is not needed for the usual lines
		default:
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(line) > 0 || omitted > 0 {
			handle(trimNewline(line), omitted)
		}
		line, omitted = line[:0], 0
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func trimNewline(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}
