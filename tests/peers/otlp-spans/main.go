// Traces as the OpenTelemetry collector reads them.
//
// It reads one request of OTLP a line, in hexadecimal digits, decodes it as the collector does, and prints it as JSON, or "error: " and why
// not.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

func main() {
	if err := read(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		body, err := hex.DecodeString(lines.Text())
		if err != nil {
			return err
		}
		request := ptraceotlp.NewExportRequest()
		if err := request.UnmarshalProto(body); err != nil {
			fmt.Fprintf(out, "error: %v\n", err)
			continue
		}
		understood, err := request.MarshalJSON()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", understood)
	}
	return lines.Err()
}
