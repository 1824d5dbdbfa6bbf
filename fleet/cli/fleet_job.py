"""The `fleet` command as a Spark application: `spark-submit … fleet_job.py feed run`, with all options and settings.

`fleet feed pack` makes a copy of this file for spark-submit, beside the code and the packages that it needs.
"""

import sys

try:
    from fleet.cli.main import main
except ModuleNotFoundError as error:
    sys.exit(
        f"fleet_job.py: {error}: give spark-submit --py-files fleet.zip, --archives environment.tar.gz#environment and "
        "--conf spark.pyspark.python=./environment/bin/python, in a folder where environment/ is unpacked"
    )

if __name__ == "__main__":
    main()
